/* The connection manager, by the distribution's header: `cm NAME ADDRESS` runs one check on a device with that
 * address, and ends with 0 if it holds. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
/* A call that fails with a number. */
#define FAILS(call, number)                                                                                            \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        CHECK((call) == -1);                                                                                           \
        CHECK(errno == (number));                                                                                      \
    } while (0)

enum { PATIENCE_MS = 20000, DEPTH = 4, BYTES = 4096 };
static struct sockaddr_in address;
static char buffer[2][BYTES];

static void on_time(int fd, short events) {
    struct pollfd poll_fd = {.fd = fd, .events = events};
    CHECK(poll(&poll_fd, 1, PATIENCE_MS) == 1);
}

static struct rdma_cm_event *next(struct rdma_event_channel *channel, enum rdma_cm_event_type type) {
    struct rdma_cm_event *event;
    on_time(channel->fd, POLLIN);
    CHECK(rdma_get_cm_event(channel, &event) == 0);
    if (event->event != type) {
        fprintf(stderr, "%s (status %d) for %s\n", rdma_event_str(event->event), event->status, rdma_event_str(type));
        exit(1);
    }
    return event;
}

static void pass(struct rdma_event_channel *channel, enum rdma_cm_event_type type) {
    struct rdma_cm_event *event = next(channel, type);
    CHECK(event->status == 0);
    CHECK(rdma_ack_cm_event(event) == 0);
}

static struct sockaddr *any_port(struct sockaddr_in *addr) {
    *addr = address;
    addr->sin_port = 0;
    return (struct sockaddr *)addr;
}

static struct ibv_qp_init_attr attributes(void) {
    return (struct ibv_qp_init_attr){
        .cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = 1,
    };
}

static void addrinfo(void) {
    struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP}, *info;
    char ip[INET_ADDRSTRLEN];
    CHECK(inet_ntop(AF_INET, &address.sin_addr, ip, sizeof ip));
    CHECK(rdma_getaddrinfo(ip, "7471", &hints, &info) == 0);
    CHECK(info->ai_family == AF_INET && info->ai_port_space == RDMA_PS_TCP && info->ai_qp_type == IBV_QPT_RC);
    CHECK(info->ai_src_len == sizeof address && info->ai_dst_len == 0);
    CHECK(((struct sockaddr_in *)info->ai_src_addr)->sin_port == htons(7471));
    CHECK(((struct sockaddr_in *)info->ai_src_addr)->sin_addr.s_addr == address.sin_addr.s_addr);
    rdma_freeaddrinfo(info);

    /* Where to connect to; from where is a hint. */
    hints = (struct rdma_addrinfo){
        .ai_flags = RAI_NUMERICHOST | RAI_FAMILY | RAI_NOROUTE,
        .ai_family = AF_INET,
        .ai_port_space = RDMA_PS_UDP,
        .ai_src_addr = (struct sockaddr *)&address,
        .ai_src_len = sizeof address,
    };
    CHECK(rdma_getaddrinfo(ip, "7", &hints, &info) == 0);
    CHECK(info->ai_port_space == RDMA_PS_UDP && info->ai_qp_type == IBV_QPT_UD);
    CHECK(info->ai_dst_len == sizeof address && info->ai_src_len == sizeof address);
    CHECK(info->ai_src_addr != (struct sockaddr *)&address);
    rdma_freeaddrinfo(info);

    /* Hints alone; a wildcard; IPv6; a name; what is none of them. */
    CHECK(rdma_getaddrinfo(NULL, NULL, &hints, &info) == 0);
    CHECK(info->ai_src_len == sizeof address && info->ai_dst_len == 0);
    rdma_freeaddrinfo(info);
    hints = (struct rdma_addrinfo){.ai_flags = RAI_PASSIVE, .ai_family = AF_INET};
    CHECK(rdma_getaddrinfo(NULL, "80", &hints, &info) == 0);
    CHECK(((struct sockaddr_in *)info->ai_src_addr)->sin_addr.s_addr == htonl(INADDR_ANY));
    rdma_freeaddrinfo(info);
    CHECK(rdma_getaddrinfo("::1", "80", NULL, &info) == 0);
    CHECK(info->ai_family == AF_INET6 && info->ai_dst_len == sizeof(struct sockaddr_in6));
    CHECK(info->ai_qp_type == IBV_QPT_RC && info->ai_port_space == RDMA_PS_TCP);
    rdma_freeaddrinfo(info);
    hints = (struct rdma_addrinfo){.ai_flags = RAI_NUMERICHOST};
    CHECK(rdma_getaddrinfo("localhost", "80", &hints, &info) == EAI_NONAME);
    FAILS(rdma_getaddrinfo(NULL, NULL, NULL, &info), EINVAL);
}

/* Newer than the header: names that an event tells of, and events of the program's own. */
static void own_events(void) {
    enum { ADDRINFO_RESOLVED = 16, USER = 18 };
    int (*resolve)(struct rdma_cm_id *, const char *, const char *, struct rdma_addrinfo *) =
        dlvsym(RTLD_DEFAULT, "rdma_resolve_addrinfo", "RDMACM_1.4");
    int (*query)(struct rdma_cm_id *, struct rdma_addrinfo **) =
        dlvsym(RTLD_DEFAULT, "rdma_query_addrinfo", "RDMACM_1.4");
    int (*write_event)(struct rdma_cm_id *, int, int, uint64_t) =
        dlvsym(RTLD_DEFAULT, "rdma_write_cm_event", "RDMACM_1.4");
    CHECK(resolve && query && write_event);
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_addrinfo *info, hints = {.ai_flags = 0x10};
    struct rdma_cm_event *event;
    struct rdma_cm_id *id;
    CHECK(channel && rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
    FAILS(query(id, &info), ENOENT);
    FAILS(resolve(id, NULL, "80", &hints), ENOTSUP);
    hints.ai_flags = RAI_NUMERICHOST;
    FAILS(resolve(id, "localhost", "80", &hints), ENOENT);
    CHECK(resolve(id, "127.0.0.1", "80", &hints) == 0);
    FAILS(resolve(id, "127.0.0.1", "80", &hints), EBUSY);
    CHECK(rdma_get_cm_event(channel, &event) == 0 && (int)event->event == ADDRINFO_RESOLVED && event->id == id);
    CHECK(!strcmp(rdma_event_str(event->event), "RDMA_CM_EVENT_ADDRINFO_RESOLVED"));
    CHECK(rdma_ack_cm_event(event) == 0);
    CHECK(query(id, &info) == 0 && ((struct sockaddr_in *)info->ai_dst_addr)->sin_port == htons(80));
    rdma_freeaddrinfo(info);
    FAILS(query(id, &info), ENOENT);

    FAILS(write_event(id, RDMA_CM_EVENT_ESTABLISHED, 0, 0), EINVAL);
    CHECK(write_event(id, USER, -7, 0x123456789abcdef0) == 0);
    CHECK(rdma_get_cm_event(channel, &event) == 0 && (int)event->event == USER && event->status == -7);
    uint64_t arg;
    memcpy(&arg, &event->param, sizeof arg);
    CHECK(arg == 0x123456789abcdef0 && rdma_ack_cm_event(event) == 0);
    /* What was not taken goes with the id. */
    CHECK(resolve(id, "127.0.0.1", "80", &hints) == 0 && rdma_destroy_id(id) == 0);
    rdma_destroy_event_channel(channel);
}

static void channel(void) {
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_event *event;
    struct rdma_cm_id *id;
    struct sockaddr_in from;
    CHECK(channel);
    CHECK(!(fcntl(channel->fd, F_GETFL) & O_NONBLOCK));
    struct pollfd poll_fd = {.fd = channel->fd, .events = POLLIN};
    CHECK(poll(&poll_fd, 1, 0) == 0);
    CHECK(fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK) == 0);
    FAILS(rdma_get_cm_event(channel, &event), EAGAIN);

    /* It is readable while there are events: one a request. */
    CHECK(rdma_create_id(channel, &id, &from, RDMA_PS_TCP) == 0);
    CHECK(id->context == &from && id->channel == channel && id->ps == RDMA_PS_TCP && id->qp_type == IBV_QPT_RC);
    CHECK(rdma_resolve_addr(id, any_port(&from), (struct sockaddr *)&address, 1000) == 0);
    pass(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK(poll(&poll_fd, 1, 0) == 0);
    CHECK(id->verbs && id->pd && id->port_num == 1);
    CHECK(rdma_get_src_port(id) != 0);
    CHECK(rdma_get_local_addr(id)->sa_family == AF_INET);
    CHECK(id->route.num_paths == 1 && id->route.path_rec);
    /* It says what the port does: its MTU, and a rate that is not 0. */
    struct ibv_port_attr port;
    CHECK(ibv_query_port(id->verbs, 1, &port) == 0 && id->route.path_rec->mtu == port.active_mtu);
    CHECK(id->route.path_rec->rate == IBV_RATE_100_GBPS && id->route.path_rec->mtu_selector == 2);
    FAILS(rdma_get_cm_event(channel, &event), EAGAIN);

    /* The device is the same for all, and the one that rdma_get_devices shows. */
    struct rdma_cm_id *other;
    CHECK(rdma_create_id(channel, &other, NULL, RDMA_PS_UDP) == 0);
    CHECK(other->qp_type == IBV_QPT_UD);
    CHECK(rdma_bind_addr(other, any_port(&from)) == 0);
    CHECK(other->verbs == id->verbs);
    CHECK(rdma_get_src_port(other) != 0);
    int count;
    struct ibv_context **devices = rdma_get_devices(&count);
    CHECK(devices && count == 1 && devices[0] == id->verbs && !devices[1]);
    rdma_free_devices(devices);
    CHECK(!strcmp(rdma_event_str(RDMA_CM_EVENT_TIMEWAIT_EXIT), "RDMA_CM_EVENT_TIMEWAIT_EXIT"));
    CHECK(!strcmp(rdma_event_str(99), "UNKNOWN EVENT"));

    /* To another channel: its events follow. */
    struct rdma_event_channel *second = rdma_create_event_channel();
    CHECK(second);
    CHECK(rdma_resolve_route(id, 1000) == 0);
    CHECK(rdma_migrate_id(id, second) == 0);
    CHECK(id->channel == second);
    pass(second, RDMA_CM_EVENT_ROUTE_RESOLVED);
    FAILS(rdma_get_cm_event(channel, &event), EAGAIN);
    CHECK(rdma_destroy_id(id) == 0);
    CHECK(rdma_destroy_id(other) == 0);
    rdma_destroy_event_channel(channel);
    rdma_destroy_event_channel(second);
}

static void errors(void) {
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id, *other;
    struct sockaddr_in addr = {.sin_family = AF_INET};
    struct ibv_qp_init_attr init = attributes();
    CHECK(channel);
    FAILS(rdma_create_id(channel, &id, NULL, 0x7777), EINVAL);
    CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
    FAILS(rdma_create_qp(id, NULL, &init), EINVAL);
    FAILS(rdma_connect(id, NULL), EINVAL);
    FAILS(rdma_resolve_route(id, 1000), EINVAL);
    FAILS(rdma_bind_addr(id, NULL), EINVAL);
    addr.sin_addr.s_addr = htonl(0xc6336401);
    FAILS(rdma_bind_addr(id, (struct sockaddr *)&addr), ENODEV);
    addr.sin_family = 27;
    FAILS(rdma_bind_addr(id, (struct sockaddr *)&addr), EINVAL);

    /* A port has one owner. */
    CHECK(rdma_bind_addr(id, any_port(&addr)) == 0);
    CHECK(rdma_create_id(channel, &other, NULL, RDMA_PS_TCP) == 0);
    FAILS(rdma_bind_addr(other, rdma_get_local_addr(id)), EADDRINUSE);
    FAILS(rdma_bind_addr(id, any_port(&addr)), EINVAL);
    CHECK(rdma_listen(id, 1) == 0);
    FAILS(rdma_connect(id, NULL), EINVAL);
    FAILS(rdma_accept(other, NULL), EINVAL);
    FAILS(rdma_reject(other, NULL, 0), EINVAL);
    FAILS(rdma_disconnect(other), EINVAL);
    struct rdma_cm_id *request;
    FAILS(rdma_get_request(id, &request), EINVAL);

    uint8_t small = 32, tos = 0x20;
    int on = 1;
    CHECK(rdma_set_option(other, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof tos) == 0);
    CHECK(rdma_set_option(other, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on) == 0);
    FAILS(rdma_set_option(other, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &on, sizeof on), EINVAL);
    FAILS(rdma_set_option(other, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &small, sizeof small), EINVAL);
    FAILS(rdma_set_option(other, RDMA_OPTION_ID, 77, &on, sizeof on), ENOSYS);
    CHECK(rdma_destroy_id(other) == 0);
    CHECK(rdma_destroy_id(id) == 0);

    /* Free again. */
    struct sockaddr_in same = addr;
    CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_bind_addr(id, (struct sockaddr *)&same) == 0);
    CHECK(rdma_destroy_id(id) == 0);
    rdma_destroy_event_channel(channel);
}

static struct rdma_cm_id *listener(struct rdma_event_channel *channel) {
    struct rdma_cm_id *id;
    struct sockaddr_in addr;
    CHECK(rdma_create_id(channel, &id, channel, RDMA_PS_TCP) == 0);
    CHECK(rdma_bind_addr(id, any_port(&addr)) == 0);
    CHECK(rdma_listen(id, 8) == 0);
    return id;
}

static struct rdma_cm_id *client(struct rdma_event_channel *channel, struct rdma_cm_id *server) {
    struct rdma_cm_id *id;
    struct ibv_qp_init_attr init = attributes();
    CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_resolve_addr(id, NULL, rdma_get_local_addr(server), 1000) == 0);
    pass(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK(rdma_resolve_route(id, 1000) == 0);
    pass(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    CHECK(rdma_create_qp(id, NULL, &init) == 0);
    CHECK(id->qp && id->send_cq && id->recv_cq && id->send_cq_channel && id->recv_cq_channel);
    CHECK(init.send_cq == id->send_cq);
    return id;
}

static void exchange(struct rdma_cm_id *from, struct rdma_cm_id *to) {
    struct ibv_mr *mrs[2] = {rdma_reg_msgs(from, buffer[0], BYTES), rdma_reg_msgs(to, buffer[1], BYTES)};
    struct ibv_wc wc;
    CHECK(mrs[0] && mrs[1]);
    memset(buffer[0], 'x', BYTES);
    memset(buffer[1], 0, BYTES);
    CHECK(rdma_post_recv(to, NULL, buffer[1], BYTES, mrs[1]) == 0);
    CHECK(rdma_post_send(from, NULL, buffer[0], BYTES, mrs[0], 0) == 0);
    CHECK(rdma_get_recv_comp(to, &wc) == 1 && wc.status == IBV_WC_SUCCESS && wc.byte_len == BYTES);
    CHECK(rdma_get_send_comp(from, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
    CHECK(!memcmp(buffer[0], buffer[1], BYTES));
    CHECK(rdma_dereg_mr(mrs[0]) == 0 && rdma_dereg_mr(mrs[1]) == 0);
}

static void connection(void) {
    struct rdma_event_channel *passive = rdma_create_event_channel(), *active = rdma_create_event_channel();
    CHECK(passive && active);
    struct rdma_cm_id *server = listener(passive), *id = client(active, server);
    struct rdma_conn_param param = {
        .private_data = "question", .private_data_len = 8, .responder_resources = 2, .initiator_depth = 1,
        .retry_count = 5, .rnr_retry_count = 6};
    CHECK(rdma_connect(id, &param) == 0);

    struct rdma_cm_event *event = next(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
    struct rdma_cm_id *child = event->id;
    CHECK(event->listen_id == server && child->context == passive && child->channel == passive);
    CHECK(child->verbs == id->verbs);
    CHECK(event->param.conn.private_data_len >= 8);
    CHECK(!memcmp(event->param.conn.private_data, "question", 8));
    /* What the peer may start is what this side may have to serve. */
    CHECK(event->param.conn.responder_resources == 1 && event->param.conn.initiator_depth == 2);
    CHECK(event->param.conn.retry_count == 5 && event->param.conn.rnr_retry_count == 6);
    CHECK(event->param.conn.qp_num == id->qp->qp_num);
    CHECK(rdma_get_dst_port(child) == rdma_get_src_port(id) && rdma_get_src_port(child) == rdma_get_dst_port(id));
    CHECK(rdma_ack_cm_event(event) == 0);

    struct ibv_qp_init_attr init = attributes();
    CHECK(rdma_create_qp(child, NULL, &init) == 0);
    param = (struct rdma_conn_param){.private_data = "answer", .private_data_len = 6, .responder_resources = 254};
    FAILS(rdma_accept(child, &param), EINVAL);
    param.responder_resources = 1;
    CHECK(rdma_accept(child, &param) == 0);
    event = next(active, RDMA_CM_EVENT_ESTABLISHED);
    CHECK(event->id == id && !memcmp(event->param.conn.private_data, "answer", 6));
    CHECK(rdma_ack_cm_event(event) == 0);
    pass(passive, RDMA_CM_EVENT_ESTABLISHED);
    CHECK(id->qp->state == IBV_QPS_RTS && child->qp->state == IBV_QPS_RTS);
    exchange(id, child);
    exchange(child, id);

    CHECK(rdma_disconnect(id) == 0);
    pass(passive, RDMA_CM_EVENT_DISCONNECTED);
    CHECK(rdma_disconnect(child) == 0);
    pass(active, RDMA_CM_EVENT_DISCONNECTED);
    for (int i = 0; i < 2; i++) {
        struct rdma_cm_id *end = i ? child : id;
        rdma_destroy_qp(end);
        CHECK(!end->qp && !end->send_cq && !end->recv_cq_channel);
        CHECK(rdma_destroy_id(end) == 0);
    }
    CHECK(rdma_destroy_id(server) == 0);
    rdma_destroy_event_channel(passive);
    rdma_destroy_event_channel(active);
}

/* A QP of another id, as DAPL has it: made before its connection is known. */
static struct ibv_qp *borrow(struct rdma_cm_id *from, struct rdma_cm_id *to) {
    to->qp = from->qp;
    from->qp = NULL;
    return to->qp;
}

static void moved(void) {
    struct rdma_event_channel *passive = rdma_create_event_channel(), *active = rdma_create_event_channel();
    CHECK(passive && active);
    struct rdma_cm_id *server = listener(passive), *spare[2] = {client(active, server), client(active, server)};
    struct rdma_cm_id *id = client(active, server);
    rdma_destroy_qp(id);
    struct ibv_qp *qps[2] = {borrow(spare[0], id), NULL};
    struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1, .retry_count = 7};
    CHECK(rdma_connect(id, &param) == 0);
    struct rdma_cm_event *event = next(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
    struct rdma_cm_id *child = event->id;
    CHECK(event->param.conn.qp_num == qps[0]->qp_num);
    CHECK(rdma_ack_cm_event(event) == 0);
    qps[1] = borrow(spare[1], child);
    CHECK(rdma_accept(child, &param) == 0);
    event = next(active, RDMA_CM_EVENT_ESTABLISHED);
    CHECK(event->param.conn.qp_num == qps[1]->qp_num);
    CHECK(rdma_ack_cm_event(event) == 0);
    pass(passive, RDMA_CM_EVENT_ESTABLISHED);

    struct ibv_mr *mr = ibv_reg_mr(id->pd, buffer[0], BYTES, IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr);
    struct ibv_sge sge = {.addr = (uintptr_t)buffer[0], .length = 8, .lkey = mr->lkey};
    struct ibv_recv_wr recv = {.sg_list = &sge, .num_sge = 1}, *bad_recv;
    struct ibv_send_wr send = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad_send;
    struct ibv_wc wc;
    CHECK(ibv_post_recv(qps[1], &recv, &bad_recv) == 0);
    CHECK(ibv_post_send(qps[0], &send, &bad_send) == 0);
    int polled;
    while ((polled = ibv_poll_cq(qps[1]->recv_cq, 1, &wc)) == 0) {
    }
    CHECK(polled == 1 && wc.status == IBV_WC_SUCCESS && wc.byte_len == 8);
    CHECK(ibv_dereg_mr(mr) == 0);

    CHECK(rdma_disconnect(id) == 0);
    pass(passive, RDMA_CM_EVENT_DISCONNECTED);
    pass(active, RDMA_CM_EVENT_DISCONNECTED);
    CHECK(qps[0]->state == IBV_QPS_ERR);
    /* They go back to those that made them. */
    spare[0]->qp = id->qp;
    spare[1]->qp = child->qp;
    id->qp = child->qp = NULL;
    for (int i = 0; i < 2; i++) {
        rdma_destroy_qp(spare[i]);
        CHECK(rdma_destroy_id(spare[i]) == 0);
    }
    CHECK(rdma_destroy_id(id) == 0 && rdma_destroy_id(child) == 0 && rdma_destroy_id(server) == 0);
    rdma_destroy_event_channel(passive);
    rdma_destroy_event_channel(active);
}

static void *serve(void *listen_id) {
    struct rdma_cm_id *id;
    struct ibv_wc wc;
    CHECK(rdma_get_request(listen_id, &id) == 0);
    CHECK(id->qp && id->event && id->event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
    struct ibv_mr *mr = rdma_reg_msgs(id, buffer[1], BYTES);
    CHECK(mr);
    CHECK(rdma_post_recv(id, NULL, buffer[1], BYTES, mr) == 0);
    CHECK(rdma_accept(id, NULL) == 0);
    CHECK(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
    CHECK(rdma_post_send(id, NULL, buffer[1], wc.byte_len, mr, 0) == 0);
    CHECK(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
    CHECK(rdma_disconnect(id) == 0);
    CHECK(rdma_dereg_mr(mr) == 0);
    rdma_destroy_ep(id);
    return NULL;
}

static void endpoints(void) {
    struct rdma_addrinfo passive = {
        .ai_flags = RAI_PASSIVE, .ai_family = AF_INET, .ai_qp_type = IBV_QPT_RC, .ai_port_space = RDMA_PS_TCP,
        .ai_src_addr = (struct sockaddr *)&address, .ai_src_len = sizeof address};
    struct rdma_addrinfo active = {
        .ai_family = AF_INET, .ai_qp_type = IBV_QPT_RC, .ai_port_space = RDMA_PS_TCP,
        .ai_dst_len = sizeof address};
    struct rdma_cm_id *server, *id;
    struct ibv_qp_init_attr init = attributes();
    struct ibv_wc wc;
    address.sin_port = 0;
    CHECK(rdma_create_ep(&server, &passive, NULL, &init) == 0);
    CHECK(rdma_listen(server, 0) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, serve, server) == 0);

    active.ai_dst_addr = rdma_get_local_addr(server);
    init = attributes();
    CHECK(rdma_create_ep(&id, &active, NULL, &init) == 0);
    CHECK(id->qp && id->event);
    struct ibv_mr *mr = rdma_reg_msgs(id, buffer[0], BYTES);
    CHECK(mr);
    strcpy(buffer[0], "there and back");
    CHECK(rdma_post_recv(id, NULL, buffer[0] + 100, 100, mr) == 0);
    CHECK(rdma_connect(id, NULL) == 0);
    CHECK(id->event->event == RDMA_CM_EVENT_ESTABLISHED);
    CHECK(rdma_post_send(id, NULL, buffer[0], 15, mr, 0) == 0);
    CHECK(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS && wc.byte_len == 15);
    CHECK(!strcmp(buffer[0] + 100, "there and back"));
    CHECK(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
    CHECK(rdma_disconnect(id) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(rdma_dereg_mr(mr) == 0);
    rdma_destroy_ep(id);
    rdma_destroy_ep(server);
}

static void refusal(void) {
    struct rdma_event_channel *passive = rdma_create_event_channel(), *active = rdma_create_event_channel();
    CHECK(passive && active);
    struct rdma_cm_id *server = listener(passive), *id = client(active, server);
    struct rdma_conn_param param = {.retry_count = 7};
    CHECK(rdma_connect(id, &param) == 0);
    struct rdma_cm_event *event = next(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
    CHECK(rdma_reject(event->id, "no room", 8) == 0);
    CHECK(rdma_destroy_id(event->id) == 0);
    CHECK(rdma_ack_cm_event(event) == 0);
    event = next(active, RDMA_CM_EVENT_REJECTED);
    CHECK(event->status == 28 && !strcmp(event->param.conn.private_data, "no room"));
    CHECK(rdma_ack_cm_event(event) == 0);
    rdma_destroy_qp(id);
    CHECK(rdma_destroy_id(id) == 0);

    /* The listener is gone. */
    id = client(active, server);
    CHECK(rdma_destroy_id(server) == 0);
    CHECK(rdma_connect(id, &param) == 0);
    event = next(active, RDMA_CM_EVENT_REJECTED);
    CHECK(event->status == 8);
    CHECK(rdma_ack_cm_event(event) == 0);
    rdma_destroy_qp(id);
    CHECK(rdma_destroy_id(id) == 0);
    rdma_destroy_event_channel(passive);
    rdma_destroy_event_channel(active);
}

/* The QP of a client cannot be made ready when the reply comes: the server is told, and need not wait. */
static void unready(void) {
    struct rdma_event_channel *passive = rdma_create_event_channel(), *active = rdma_create_event_channel();
    CHECK(passive && active);
    struct rdma_cm_id *server = listener(passive), *id = client(active, server);
    struct rdma_conn_param param = {.retry_count = 7};
    struct ibv_qp_init_attr init = attributes();
    struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
    CHECK(rdma_connect(id, &param) == 0);
    CHECK(ibv_modify_qp(id->qp, &reset, IBV_QP_STATE) == 0);
    struct rdma_cm_event *event = next(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
    struct rdma_cm_id *child = event->id;
    CHECK(rdma_ack_cm_event(event) == 0);
    CHECK(rdma_create_qp(child, NULL, &init) == 0);
    CHECK(rdma_accept(child, &param) == 0);
    event = next(active, RDMA_CM_EVENT_CONNECT_ERROR);
    CHECK(event->id == id && event->status == -EINVAL);
    CHECK(rdma_ack_cm_event(event) == 0);
    event = next(passive, RDMA_CM_EVENT_REJECTED);
    CHECK(event->id == child && event->status == 28);
    CHECK(rdma_ack_cm_event(event) == 0);
    rdma_destroy_qp(child);
    rdma_destroy_qp(id);
    CHECK(rdma_destroy_id(child) == 0 && rdma_destroy_id(id) == 0 && rdma_destroy_id(server) == 0);
    rdma_destroy_event_channel(passive);
    rdma_destroy_event_channel(active);
}

static volatile int is_destroyed;

static void *destroy(void *id) {
    CHECK(rdma_destroy_id(id) == 0);
    is_destroyed = 1;
    return NULL;
}

static void acknowledge(void) {
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id;
    CHECK(channel);
    CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 1000) == 0);
    struct rdma_cm_event *event = next(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, destroy, id) == 0);
    struct timespec moment = {.tv_nsec = 100 * 1000 * 1000};
    nanosleep(&moment, NULL);
    CHECK(!is_destroyed);
    CHECK(rdma_ack_cm_event(event) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(is_destroyed);
    rdma_destroy_event_channel(channel);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } checks[] = {
        {"addrinfo", addrinfo},     {"channel", channel}, {"errors", errors},           {"connection", connection},
        {"endpoints", endpoints},   {"refusal", refusal}, {"acknowledge", acknowledge},
        {"moved", moved},           {"unready", unready}, {"own_events", own_events},
    };
    CHECK(argc == 3);
    address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(7471)};
    CHECK(inet_pton(AF_INET, argv[2], &address.sin_addr) == 1);
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        if (!strcmp(argv[1], checks[i].name)) {
            checks[i].run();
            return 0;
        }
    }
    fprintf(stderr, "there is no check %s\n", argv[1]);
    return 2;
}
