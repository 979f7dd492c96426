/* PEs of OpenSHMEM in a ring: puts of 1 byte to 1 MiB that the next one compares, gets of what is there, and atomics on one
 * counter of the first. */
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 1 << 20, TIMES = 200 };
static unsigned char sent[MOST], back[MOST];
static long counter;

static void check(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "wrong: %s\n", what);
        exit(1);
    }
}

int main(void) {
    shmem_init();
    int me = shmem_my_pe(), all = shmem_n_pes(), next = (me + 1) % all, before = (me + all - 1) % all;
    unsigned char *got = shmem_malloc(MOST);
    check(got != NULL, "shmem_malloc");
    for (int len = 1; len <= MOST; len *= 8) {
        for (int at = 0; at < len; at++)
            sent[at] = (unsigned char)(at * 13 + me + len);
        shmem_putmem(got, sent, len, next);
        shmem_barrier_all();
        for (int at = 0; at < len; at++)
            check(got[at] == (unsigned char)(at * 13 + before + len), "a put");
        shmem_getmem(back, got, len, next);
        for (int at = 0; at < len; at++)
            check(back[at] == sent[at], "a get");
        shmem_barrier_all();
    }
    for (int time = 0; time < TIMES; time++)
        shmem_long_atomic_inc(&counter, 0);
    shmem_barrier_all();
    check(shmem_long_atomic_fetch(&counter, 0) == (long)TIMES * all, "a counter");
    shmem_free(got);
    shmem_barrier_all();
    if (me == 0)
        puts("all came back");
    shmem_finalize();
    return 0;
}
