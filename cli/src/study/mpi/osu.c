/* What the OSU micro-benchmarks of these names measure, for two ranks, in one run: a line "NAME SIZE VALUE" each.
 *
 *   osu_latency       microseconds of half a round trip
 *   osu_bw            bytes a microsecond of messages, 64 under way
 *   osu_mbw_mr        messages a second, 64 under way
 *   osu_iallreduce    percent of a collective's time that is hidden behind work that takes as long
 *
 * All bytes that arrive are compared. The argument is how long a measurement is, from 1 to 100.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { UNDER_WAY = 64, LARGEST = 1 << 20, LIMIT_S = 120 };

static int rank;
static unsigned char *data;

static void check(const unsigned char *at, int size, int expected)
{
    if (at[0] != (expected & 0xff) || at[size - 1] != (expected & 0xff)) {
        fprintf(stderr, "wrong data: %d and %d in place of %d\n", at[0], at[size - 1], expected & 0xff);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* Half round trips. */
static void bounce(int size, int count)
{
    for (int i = 0; i < 2 * count; i++) {
        if (i % 2 == rank) {
            data[0] = data[size - 1] = i & 0xff;
            MPI_Send(data, size, MPI_BYTE, !rank, 1, MPI_COMM_WORLD);
        } else {
            MPI_Recv(data, size, MPI_BYTE, !rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            check(data, size, i);
        }
    }
}

/* Windows of messages, each of which is answered as a whole. */
static void stream(int size, int count)
{
    MPI_Request requests[UNDER_WAY];
    for (int i = 0; i < count; i++) {
        for (int n = 0; n < UNDER_WAY; n++) {
            unsigned char *at = data + (size_t)n * size;
            if (rank == 0) {
                at[0] = at[size - 1] = (i + n) & 0xff;
                MPI_Isend(at, size, MPI_BYTE, 1, 2, MPI_COMM_WORLD, &requests[n]);
            } else {
                MPI_Irecv(at, size, MPI_BYTE, 0, 2, MPI_COMM_WORLD, &requests[n]);
            }
        }
        MPI_Waitall(UNDER_WAY, requests, MPI_STATUSES_IGNORE);
        for (int n = 0; rank == 1 && n < UNDER_WAY; n++)
            check(data + (size_t)n * size, size, i + n);
        int answer = 0;
        if (rank == 1)
            MPI_Send(&answer, 1, MPI_INT, 0, 3, MPI_COMM_WORLD);
        else
            MPI_Recv(&answer, 1, MPI_INT, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

static double timed(void (*act)(int, int), int size, int count)
{
    act(size, count / 10 + 1);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    act(size, count);
    return (MPI_Wtime() - start) / count;
}

/* Work that calls nothing of MPI. */
static double compute(double seconds)
{
    double start = MPI_Wtime(), now = start;
    while (now - start < seconds)
        now = MPI_Wtime();
    return now - start;
}

static double overlap(int size, int count)
{
    int numbers = size / sizeof(int);
    int *from = calloc(numbers, sizeof(int)), *to = calloc(numbers, sizeof(int));
    double alone = 0, whole = 0, work = 0;
    for (int i = 0; i < numbers; i++)
        from[i] = i + rank;
    for (int i = 0; i < 2 * count; i++) {
        MPI_Request request;
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        MPI_Iallreduce(from, to, numbers, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        if (i >= count)
            work += compute(alone / count);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        *(i < count ? &alone : &whole) += MPI_Wtime() - start;
        if (to[numbers - 1] != 2 * (numbers - 1) + 1)
            MPI_Abort(MPI_COMM_WORLD, 1);
    }
    free(from);
    free(to);
    double hidden = 100 * (1 - (whole - work) / alone);
    return hidden < 0 ? 0 : hidden;
}

static void tell(const char *name, int size, double value)
{
    if (rank == 0)
        printf("%s %d %.3f\n", name, size, value);
}

int main(int argc, char **argv)
{
    /* A run that hangs ends, and its launcher with it. */
    alarm(LIMIT_S);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int scale = argc == 2 ? atoi(argv[1]) : 0;
    data = calloc(UNDER_WAY, LARGEST);
    if (scale < 1 || scale > 100 || !data) {
        fprintf(stderr, "osu SCALE, from 1 to 100\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    static const int sizes[] = {8, 16 << 10, LARGEST};
    static const int counts[] = {200, 50, 5};
    for (int n = 0; n < 3; n++)
        tell("osu_latency", sizes[n], timed(bounce, sizes[n], counts[n] * scale) / 2 * 1e6);
    tell("osu_bw", LARGEST, UNDER_WAY * (double)LARGEST / timed(stream, LARGEST, (scale + 3) / 4) / 1e6);
    tell("osu_mbw_mr", 8, UNDER_WAY / timed(stream, 8, 20 * scale));
    tell("osu_iallreduce", 256 << 10, overlap(256 << 10, 5 * scale));
    free(data);
    MPI_Finalize();
    return 0;
}
