/* Ranks of MPI in a ring: messages of 1 byte to 4 MiB, both protocols of each library, go round and are compared; then a sum
 * over all, and atomic sums in a window. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 4 << 20 };
static unsigned char sent[MOST], got[MOST];

static void check(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "wrong: %s\n", what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

int main(int argc, char **argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    for (int len = 1; len <= MOST; len *= 4) {
        for (int at = 0; at < len; at++)
            sent[at] = (unsigned char)(at * 31 + rank + len);
        MPI_Sendrecv(sent, len, MPI_BYTE, next, 1, got, len, MPI_BYTE, before, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int at = 0; at < len; at++)
            check(got[at] == (unsigned char)(at * 31 + before + len), "a message");
    }
    long mine = rank + 1, sum = 0, right = (long)ranks * (ranks + 1) / 2;
    MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    check(sum == right, "MPI_Allreduce");
    long *shared;
    MPI_Win window;
    MPI_Win_allocate(sizeof *shared, sizeof *shared, MPI_INFO_NULL, MPI_COMM_WORLD, &shared, &window);
    MPI_Win_fence(0, window);
    *shared = 0;
    MPI_Win_fence(0, window);
    for (int to = 0; to < ranks; to++)
        MPI_Accumulate(&mine, 1, MPI_LONG, to, 0, 1, MPI_LONG, MPI_SUM, window);
    MPI_Win_fence(0, window);
    check(*shared == right, "MPI_Accumulate");
    MPI_Win_free(&window);
    MPI_Finalize();
    if (rank == 0)
        puts("all sums are right");
    return 0;
}
