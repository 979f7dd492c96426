/* A check that ends the program with 1 if it does not hold. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "line %d: %s (errno %d: %s)\n", __LINE__, #what, errno, strerror(errno));                  \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
