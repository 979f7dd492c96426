/* How fast one process reads another's memory by process_vm_readv, which is one copy, made by the kernel: what the memory wire could
 * use in place of two copies through a ring. Arguments: bytes a call, and 1 for huge pages. Prints Gbit/s, the best of seven samples. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SPAN = 8 << 20, ROUNDS = 8, SAMPLES = 7 };

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

static char *memory(int huge) {
    char *at = mmap(NULL, SPAN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    madvise(at, SPAN, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    memset(at, 1, SPAN);
    return at;
}

int main(int argc, char **argv) {
    size_t size = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
    int huge = argc > 2 && atoi(argv[2]);
    int ready[2];
    if (size == 0 || SPAN % size != 0 || pipe(ready) != 0) {
        fprintf(stderr, "usage: one_copy BYTES [1], where BYTES divides 8 MiB\n");
        return 2;
    }
    char *to = memory(huge), *from = memory(huge);
    pid_t child = fork();
    if (child == 0) {
        /* Pages of its own, as another program has them. */
        memset(from, 2, SPAN);
        if (write(ready[1], "", 1) == 1)
            pause();
        _exit(0);
    }
    char byte;
    if (child < 0 || read(ready[0], &byte, 1) != 1)
        return 1;
    double best = 0;
    int status = 0;
    for (int sample = 0; sample < SAMPLES && status == 0; sample++) {
        double start = seconds();
        for (int round = 0; round < ROUNDS; round++)
            for (size_t at = 0; at < SPAN; at += size) {
                struct iovec local = {to + at, size}, remote = {from + at, size};
                if (process_vm_readv(child, &local, 1, &remote, 1, 0) != (ssize_t)size)
                    status = 1;
            }
        double rate = (double)SPAN * ROUNDS * 8 / (seconds() - start) / 1e9;
        best = rate > best ? rate : best;
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    if (status != 0 || to[SPAN - 1] != 2) {
        fprintf(stderr, "process_vm_readv is not allowed here\n");
        return 1;
    }
    printf("%.2f\n", best);
    return 0;
}
