/* Lists the devices of the libibverbs that this program gets hold of: of the library that it is told to load, or, built
 * with -DLINKED, of the one that it was linked to. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>

#include "check.h"

typedef struct ibv_device **(*get_list)(int *);
typedef const char *(*get_name)(struct ibv_device *);

int main(int argc, char **argv) {
#ifdef LINKED
    CHECK(argc == 1 && argv);
    get_list list = ibv_get_device_list;
    get_name name = ibv_get_device_name;
#else
    CHECK(argc == 2);
    void *library = dlopen(argv[1], RTLD_NOW);
    CHECK(library);
    get_list list = (get_list)dlvsym(library, "ibv_get_device_list", "IBVERBS_1.1");
    get_name name = (get_name)dlvsym(library, "ibv_get_device_name", "IBVERBS_1.1");
    CHECK(list && name);
#endif
    int count = 0;
    struct ibv_device **devices = list(&count);
    for (int n = 0; devices && n < count; n++)
        printf("%s\n", name(devices[n]));
    printf("%d devices\n", count);
    return 0;
}
