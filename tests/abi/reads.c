/* Events that a program takes by `read`, as from the kernel: `reads NAME` runs one check under `urxe run`, and ends with 0 if
 * it holds. */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE
#define _FORTIFY_SOURCE 2
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/ib_user_verbs.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#define FAILS(call, number)                                                                                            \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        CHECK((call) == -1);                                                                                           \
        CHECK(errno == (number));                                                                                      \
    } while (0)

enum { PATIENCE_MS = 20000, PATIENCE_S = 50, READERS = 4, ROUNDS = 200, ROOM = 64 };

typedef struct ib_uverbs_comp_event_desc comp_event;
typedef struct ib_uverbs_async_event_desc async_event;

static struct ibv_context *context;
static struct ibv_pd *pd;
static union ibv_gid gid;

/* Two queue pairs that are connected, each with a queue of its own; both queues tell one channel. */
struct pair {
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq[2];
    struct ibv_qp *qp[2];
};

static void open_device(void) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    CHECK(list && list[0]);
    CHECK(context = ibv_open_device(list[0]));
    ibv_free_device_list(list);
    CHECK(pd = ibv_alloc_pd(context));
    CHECK(ibv_query_gid(context, 1, 0, &gid) == 0);
}

static void connect_qp(struct ibv_qp *qp, uint32_t peer) {
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = peer,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 1,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .hop_limit = 64}},
    };
    CHECK(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
    CHECK(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                            IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static struct pair make_pair(void) {
    struct pair pair;
    CHECK(pair.channel = ibv_create_comp_channel(context));
    for (int n = 0; n < 2; n++) {
        CHECK(pair.cq[n] = ibv_create_cq(context, 64, NULL, pair.channel, 0));
        struct ibv_qp_init_attr init = {
            .send_cq = pair.cq[n],
            .recv_cq = pair.cq[n],
            .cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 16},
            .qp_type = IBV_QPT_RC,
        };
        CHECK(pair.qp[n] = ibv_create_qp(pd, &init));
    }
    connect_qp(pair.qp[0], pair.qp[1]->qp_num);
    connect_qp(pair.qp[1], pair.qp[0]->qp_num);
    return pair;
}

static void destroy_pair(struct pair *pair) {
    for (int n = 0; n < 2; n++)
        CHECK(ibv_destroy_qp(pair->qp[n]) == 0 && ibv_destroy_cq(pair->cq[n]) == 0);
    CHECK(ibv_destroy_comp_channel(pair->channel) == 0);
}

/* Has an event raised by each queue: one for the SEND, one for the receive. */
static void raise_events(struct pair *pair) {
    struct ibv_recv_wr receive = {0}, *bad_receive;
    struct ibv_send_wr send = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad_send;
    CHECK(ibv_req_notify_cq(pair->cq[0], 0) == 0 && ibv_req_notify_cq(pair->cq[1], 0) == 0);
    CHECK(ibv_post_recv(pair->qp[1], &receive, &bad_receive) == 0);
    CHECK(ibv_post_send(pair->qp[0], &send, &bad_send) == 0);
}

static void take_completion(struct ibv_cq *cq) {
    struct ibv_wc wc;
    CHECK(ibv_poll_cq(cq, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
}

static int is_readable(int fd, int timeout_ms) {
    struct pollfd it = {.fd = fd, .events = POLLIN};
    int ready = poll(&it, 1, timeout_ms);
    CHECK(ready >= 0);
    return ready;
}

static void set_non_blocking(int fd, int is_on) {
    int flags = fcntl(fd, F_GETFL) & ~O_NONBLOCK;
    CHECK(fcntl(fd, F_SETFL, is_on ? flags | O_NONBLOCK : flags) == 0);
}

/* The queue that an event names. */
static struct ibv_cq *read_cq(struct ibv_comp_channel *channel) {
    comp_event event = {0};
    CHECK(read(channel->fd, &event, sizeof event) == sizeof event);
    return (struct ibv_cq *)(uintptr_t)event.cq_handle;
}

/* After both events. */
static void take_both(struct pair *pair) {
    for (int n = 0; n < 2; n++) {
        take_completion(pair->cq[n]);
        ibv_ack_cq_events(pair->cq[n], 1);
    }
}

/* Both events of a pair, in either order. */
static void read_both(struct pair *pair) {
    struct ibv_cq *first = read_cq(pair->channel), *second = read_cq(pair->channel);
    CHECK((first == pair->cq[0] && second == pair->cq[1]) || (first == pair->cq[1] && second == pair->cq[0]));
    take_both(pair);
}

static void *raise_soon(void *pair) {
    usleep(100 * 1000);
    raise_events(pair);
    return NULL;
}

static void *destroy_cq(void *cq) {
    CHECK(ibv_destroy_cq(cq) == 0);
    return NULL;
}

/* Two channels, with two queues each: every event is its channel's, and is delivered once it is read. */
static void check_completions(void) {
    struct pair pairs[2] = {make_pair(), make_pair()};
    char room[ROOM];
    for (int n = 0; n < 2; n++)
        CHECK(!is_readable(pairs[n].channel->fd, 0));
    for (int n = 0; n < 2; n++)
        raise_events(&pairs[n]);
    for (int n = 1; n >= 0; n--) {
        CHECK(is_readable(pairs[n].channel->fd, PATIENCE_MS));
        read_both(&pairs[n]);
        CHECK(!is_readable(pairs[n].channel->fd, 0));
        CHECK(pairs[n].cq[0]->comp_events_completed == 1 && pairs[n].cq[1]->comp_events_completed == 1);
    }

    /* An event that there is no room for stays; where there is more room, one is read. */
    struct pair *pair = &pairs[0];
    int fd = pair->channel->fd;
    raise_events(pair);
    CHECK(is_readable(fd, PATIENCE_MS));
    FAILS(read(fd, room, sizeof(comp_event) - 1), EINVAL);
    FAILS(read(fd, room, 0), EINVAL);
    for (int n = 0; n < 2; n++) {
        /* The compiler knows the room and not the length: `__read_chk`. */
        volatile size_t len = sizeof room;
        memset(room, 7, sizeof room);
        CHECK(read(fd, room, len) == sizeof(comp_event));
        CHECK(!memcmp(room, &pair->cq[0], 8) || !memcmp(room, &pair->cq[1], 8));
        CHECK(room[8] == 7);
    }
    take_both(pair);

    /* One after the other by either way. */
    struct ibv_cq *cq;
    void *cq_context;
    raise_events(pair);
    CHECK(ibv_get_cq_event(pair->channel, &cq, &cq_context) == 0);
    CHECK(read_cq(pair->channel) == (cq == pair->cq[0] ? pair->cq[1] : pair->cq[0]));
    take_both(pair);

    /* Waiting, and not. */
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, raise_soon, pair) == 0);
    read_both(pair);
    CHECK(pthread_join(thread, NULL) == 0);
    set_non_blocking(fd, 1);
    FAILS(read(fd, room, sizeof room), EAGAIN);
    raise_events(pair);
    CHECK(is_readable(fd, PATIENCE_MS));
    while (pair->cq[0]) {
        struct ibv_cq *told;
        comp_event event;
        if (read(fd, &event, sizeof event) < 0) {
            CHECK(errno == EAGAIN && is_readable(fd, PATIENCE_MS));
            continue;
        }
        told = (struct ibv_cq *)(uintptr_t)event.cq_handle;
        if (told == pair->cq[1]) {
            ibv_ack_cq_events(told, 1);
            continue;
        }
        /* A queue goes once what was read of it is acknowledged. */
        take_completion(told);
        CHECK(ibv_destroy_qp(pair->qp[0]) == 0);
        CHECK(pthread_create(&thread, NULL, destroy_cq, told) == 0);
        usleep(100 * 1000);
        CHECK(pthread_tryjoin_np(thread, NULL) == EBUSY);
        ibv_ack_cq_events(told, 1);
        CHECK(pthread_join(thread, NULL) == 0);
        pair->cq[0] = NULL;
    }
    destroy_pair(&pairs[1]);
}

/* Has an error of the peer's raised as an event of the second queue pair. */
static void raise_access_error(struct pair *pair) {
    struct ibv_sge sge = {(uintptr_t) "x", 1, 0};
    struct ibv_send_wr write = {
        .sg_list = &sge,
        .num_sge = 1,
        .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
        .wr.rdma = {.remote_addr = 0, .rkey = 0xdead},
    }, *bad;
    CHECK(ibv_post_send(pair->qp[0], &write, &bad) == 0);
}

static void check_async_event(struct pair *pair, const async_event *event) {
    CHECK(event->element == (uintptr_t)pair->qp[1] && event->event_type == IBV_EVENT_QP_ACCESS_ERR);
    CHECK(event->reserved == 0 && pair->qp[1]->events_completed == 0);
    struct ibv_async_event delivered = {.element.qp = pair->qp[1], .event_type = event->event_type};
    ibv_ack_async_event(&delivered);
    CHECK(pair->qp[1]->events_completed == 1);
    struct ibv_wc wc;
    while (ibv_poll_cq(pair->cq[0], 1, &wc) == 0)
        sched_yield();
    CHECK(wc.status == IBV_WC_REM_ACCESS_ERR);
    destroy_pair(pair);
}

/* The asynchronous events of a context, and of another one of the same file. */
static void check_async(void) {
    struct pair pair = make_pair();
    char room[ROOM] = {0};
    async_event event = {.reserved = 1};
    struct ibv_context *second = ibv_import_device(dup(context->cmd_fd));
    CHECK(second && second->async_fd == context->async_fd);
    raise_access_error(&pair);
    CHECK(is_readable(context->async_fd, PATIENCE_MS));
    FAILS(read(context->async_fd, room, sizeof event - 1), EINVAL);
    CHECK(read(context->async_fd, room, sizeof room) == sizeof event);
    memcpy(&event, room, sizeof event);
    check_async_event(&pair, &event);
    CHECK(!is_readable(context->async_fd, 0));
    /* Waiting, once the other context is gone, and not waiting. */
    CHECK(ibv_close_device(second) == 0);
    pair = make_pair();
    raise_access_error(&pair);
    CHECK(read(context->async_fd, &event, sizeof event) == sizeof event);
    check_async_event(&pair, &event);
    set_non_blocking(context->async_fd, 1);
    FAILS(read(context->async_fd, &event, sizeof event), EAGAIN);
}

/* What is read before the program begins. */
static char early[8];

__attribute__((constructor)) static void read_early(void) {
    int ends[2];
    CHECK(pipe(ends) == 0 && write(ends[1], "early", 5) == 5);
    CHECK(read(ends[0], early, sizeof early) == 5);
    close(ends[0]);
    close(ends[1]);
}

static int ends[2];

static void read_pipe(int signal) {
    char byte;
    (void)signal;
    CHECK(read(ends[0], &byte, 1) == 1 && byte == 's');
}

static void *wait_in_read(void *fd) {
    char byte;
    CHECK(read(*(int *)fd, &byte, 1) != 1);
    return NULL;
}

static void *interrupt(void *thread) {
    usleep(100 * 1000);
    CHECK(write(ends[1], "s", 1) == 1);
    CHECK(pthread_kill(*(pthread_t *)thread, SIGUSR1) == 0);
    return NULL;
}

/* All other descriptors, beside channels. */
static void check_others(void) {
    CHECK(!strcmp(early, "early"));
    struct pair pair = make_pair();
    char room[ROOM];
    volatile size_t len = 5;
    CHECK(pipe(ends) == 0 && write(ends[1], "pipes", 5) == 5);
    errno = 77;
    CHECK(read(ends[0], room, len) == 5 && !memcmp(room, "pipes", 5));
    CHECK(write(ends[1], "again", 5) == 5 && read(ends[0], room, 5) == 5 && !memcmp(room, "again", 5));
    CHECK(errno == 77);
    set_non_blocking(ends[0], 1);
    FAILS(read(ends[0], room, 1), EAGAIN);
    set_non_blocking(ends[0], 0);
    FAILS(read(-1, room, 1), EBADF);
    int file = open("/dev/zero", O_RDONLY), number = eventfd(5, 0);
    CHECK(file >= 0 && read(file, room, sizeof room) == sizeof room && room[0] == 0 && room[ROOM - 1] == 0);
    uint64_t count;
    CHECK(read(number, &count, sizeof count) == 8 && count == 5);

    /* In a signal handler, while the thread waits for an event: that goes on. */
    struct sigaction action = {.sa_handler = read_pipe};
    pthread_t self = pthread_self(), thread, raiser;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, interrupt, &self) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, interrupt, &self) == 0);
    CHECK(pthread_create(&raiser, NULL, raise_soon, &pair) == 0);
    read_both(&pair);
    CHECK(pthread_join(thread, NULL) == 0 && pthread_join(raiser, NULL) == 0);

    /* A thread that is cancelled in it. */
    void *result;
    CHECK(pthread_create(&thread, NULL, wait_in_read, &ends[0]) == 0);
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);

    /* The number of a channel that is gone. */
    int fd = pair.channel->fd;
    destroy_pair(&pair);
    CHECK(dup2(ends[0], fd) == fd && write(ends[1], "pipes", 5) == 5);
    CHECK(read(fd, room, sizeof room) == 5 && !memcmp(room, "pipes", 5));
}

static struct pair shared;
static atomic_int taken;

static void *read_many(void *_) {
    (void)_;
    do {
        struct ibv_cq *cq = read_cq(shared.channel);
        CHECK(cq == shared.cq[0] || cq == shared.cq[1]);
        ibv_ack_cq_events(cq, 1);
        /* Each of the last ones ends a thread. */
    } while (taken++ < 2 * ROUNDS);
    return NULL;
}

/* Several threads wait for the events of one channel: each event is taken by one. */
static void check_threads(void) {
    pthread_t threads[READERS];
    shared = make_pair();
    for (int n = 0; n < READERS; n++)
        CHECK(pthread_create(&threads[n], NULL, read_many, NULL) == 0);
    for (int round = 1; round <= ROUNDS + READERS / 2; round++) {
        raise_events(&shared);
        while (taken < 2 * round)
            sched_yield();
        CHECK(taken == 2 * round);
        take_completion(shared.cq[0]);
        take_completion(shared.cq[1]);
    }
    for (int n = 0; n < READERS; n++)
        CHECK(pthread_join(threads[n], NULL) == 0);
    CHECK(!is_readable(shared.channel->fd, 0));
    destroy_pair(&shared);
}

static void in_child(struct pair *pair) {
    char room[ROOM];
    int fd = pair->channel->fd, pipes[2];
    uint64_t count;
    /* As `ibv_get_cq_event` there. */
    FAILS(read(fd, room, sizeof room), ENODEV);
    FAILS(read(context->async_fd, room, sizeof room), ENODEV);
    /* The child closes what it has no use for, and others have the numbers. */
    CHECK(pipe(pipes) == 0 && dup2(pipes[0], fd) == fd && write(pipes[1], "child", 5) == 5);
    CHECK(read(fd, room, sizeof room) == 5 && !memcmp(room, "child", 5));
    CHECK(close(context->async_fd) == 0 && eventfd(3, 0) == context->async_fd);
    CHECK(read(context->async_fd, &count, sizeof count) == 8 && count == 3);
    /* What it opens itself. */
    open_device();
    struct pair own = make_pair();
    raise_events(&own);
    read_both(&own);
    destroy_pair(&own);
}

/* A child leaves its parent's events alone. */
static void check_fork(void) {
    struct pair pair = make_pair();
    raise_events(&pair);
    CHECK(is_readable(pair.channel->fd, PATIENCE_MS));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(PATIENCE_S);
        in_child(&pair);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(is_readable(pair.channel->fd, 0));
    read_both(&pair);
    destroy_pair(&pair);
}

/* Numbers of channels that are far away from each other. */
static void check_high(void) {
    enum { APART = 1 << 14 };
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    if (limit.rlim_max < APART + 256)
        return;
    limit.rlim_cur = limit.rlim_max;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK(pipe(ends) == 0 && write(ends[1], "pipes", 5) == 5);
    int last = ends[1];
    while (last < APART + 32)
        CHECK((last = dup(ends[0])) >= 0);
    struct pair pair = make_pair();
    char room[ROOM];
    int fd = pair.channel->fd;
    CHECK(fd > APART && dup2(ends[0], fd - APART) == fd - APART);
    raise_events(&pair);
    CHECK(read(fd - APART, room, sizeof room) == 5 && !memcmp(room, "pipes", 5));
    read_both(&pair);
    destroy_pair(&pair);
}

/* Without the library for `LD_PRELOAD` the descriptor is an eventfd: its count says nothing of the events, which stay. */
static void check_plain(void) {
    struct pair pair = make_pair();
    uint64_t count;
    raise_events(&pair);
    CHECK(read(pair.channel->fd, &count, sizeof count) == 8 && count == 1);
    for (int n = 0; n < 2; n++) {
        struct ibv_cq *cq;
        void *cq_context;
        CHECK(ibv_get_cq_event(pair.channel, &cq, &cq_context) == 0);
    }
    take_both(&pair);
    raise_events(&pair);
    CHECK(is_readable(pair.channel->fd, PATIENCE_MS));
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*check)(void);
    } checks[] = {
        {"completions", check_completions}, {"async", check_async}, {"others", check_others}, {"threads", check_threads},
        {"fork", check_fork},               {"high", check_high},   {"plain", check_plain},
    };
    CHECK(argc == 2);
    alarm(PATIENCE_S);
    for (size_t n = 0; n < sizeof checks / sizeof *checks; n++) {
        if (strcmp(argv[1], checks[n].name) == 0) {
            open_device();
            checks[n].check();
            return 0;
        }
    }
    fprintf(stderr, "no check named %s\n", argv[1]);
    return 2;
}
