/* Two ranks: half the round trip of a ping-pong (of 8 bytes), then the rate of one-way messages (of 1 MiB), some under way at a time.
 * Prints "lat US" or "bw BITS_PER_SECOND/1e9", and checks what arrives.
 *
 *   mpi lat|bw SIZE COUNT
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNDER_WAY = 16 };

static void check(const unsigned char *data, int size, unsigned char expected)
{
    if (data[0] != expected || data[size - 1] != expected) {
        fprintf(stderr, "wrong data: %d and %d in place of %d\n", data[0], data[size - 1], expected);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void latency(int rank, unsigned char *data, int size, int count)
{
    for (int i = 0; i < count; i++) {
        for (int turn = 0; turn < 2; turn++) {
            if (turn == rank) {
                memset(data, i & 0xff, size);
                MPI_Send(data, size, MPI_BYTE, !rank, 1, MPI_COMM_WORLD);
            } else {
                MPI_Recv(data, size, MPI_BYTE, !rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                check(data, size, i & 0xff);
            }
        }
    }
}

static void bandwidth(int rank, unsigned char *data, int size, int count)
{
    MPI_Request requests[UNDER_WAY];
    for (int i = 0; i < count; i += UNDER_WAY) {
        for (int n = 0; n < UNDER_WAY; n++) {
            unsigned char *at = data + (size_t)n * size;
            if (rank == 0) {
                at[0] = at[size - 1] = (i + n) & 0xff;
                MPI_Isend(at, size, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &requests[n]);
            } else {
                MPI_Irecv(at, size, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &requests[n]);
            }
        }
        MPI_Waitall(UNDER_WAY, requests, MPI_STATUSES_IGNORE);
        for (int n = 0; rank == 1 && n < UNDER_WAY; n++)
            check(data + (size_t)n * size, size, (i + n) & 0xff);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc != 4) {
        fprintf(stderr, "mpi lat|bw SIZE COUNT\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int is_latency = !strcmp(argv[1], "lat"), size = atoi(argv[2]), count = atoi(argv[3]);
    unsigned char *data = calloc(UNDER_WAY, size);
    void (*run)(int, unsigned char *, int, int) = is_latency ? latency : bandwidth;
    run(rank, data, size, count / 10 + UNDER_WAY);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    run(rank, data, size, count);
    double took = MPI_Wtime() - start;
    if (rank == 0 && is_latency)
        printf("lat %.3f\n", took / count / 2 * 1e6);
    else if (rank == 0)
        printf("bw %.3f\n", 8.0 * size * count / took / 1e9);
    free(data);
    MPI_Finalize();
    return 0;
}
