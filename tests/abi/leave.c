/* One side leaves its connection to the exit of the process, and the other one hears of it: `leave serve ADDRESS PORT`
 * waits for a connection and for its end, `leave go ADDRESS PORT` connects and returns from main; with `fork` behind it a
 * child of its own exits first, which must end nothing. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

#include "check.h"

static struct rdma_cm_id *endpoint(const char *host, const char *port, int flags) {
    struct rdma_addrinfo hints = {.ai_flags = flags, .ai_port_space = RDMA_PS_TCP}, *info;
    CHECK(rdma_getaddrinfo(host, port, &hints, &info) == 0);
    struct ibv_qp_init_attr attr = {.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
    struct rdma_cm_id *id;
    CHECK(rdma_create_ep(&id, info, NULL, &attr) == 0);
    rdma_freeaddrinfo(info);
    return id;
}

/* True if something happens to the connection within so many milliseconds. */
static int has_event(struct rdma_cm_id *id, int timeout_ms) {
    struct pollfd poll_fd = {.fd = id->channel->fd, .events = POLLIN};
    return poll(&poll_fd, 1, timeout_ms) == 1;
}

int main(int argc, char **argv) {
    CHECK(argc >= 4);
    if (!strcmp(argv[1], "go")) {
        struct rdma_cm_id *id = endpoint(argv[2], argv[3], 0);
        if (rdma_connect(id, NULL))
            return 3;
        if (argc > 4) {
            pid_t child = fork();
            CHECK(child >= 0);
            if (!child)
                exit(0);
            int status;
            CHECK(waitpid(child, &status, 0) == child && status == 0);
            CHECK(!has_event(id, 200));
        }
        return 0;
    }
    struct rdma_cm_id *listener = endpoint(argv[2], argv[3], RAI_PASSIVE), *id;
    CHECK(rdma_listen(listener, 1) == 0);
    CHECK(rdma_get_request(listener, &id) == 0);
    CHECK(rdma_accept(id, NULL) == 0);
    /* Far less than a retry of anything takes. */
    CHECK(has_event(id, 3000));
    struct rdma_cm_event *event;
    CHECK(rdma_get_cm_event(id->channel, &event) == 0);
    CHECK(event->event == RDMA_CM_EVENT_DISCONNECTED);
    puts("disconnected");
    return 0;
}
