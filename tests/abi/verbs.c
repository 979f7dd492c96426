/* What no program of the distribution does, by the distribution's header: `verbs NAME` runs one check, and ends with 0
 * if it holds. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { DEPTH = 4, BYTES = 4096 };
static const int PATIENCE_MS = 20000;
/* Of newer headers. */
static const uint64_t WITH_FLUSH = 1 << 11;
static const size_t WR_FLUSH_OFFSET = 352;
static const int ACCESS_FLUSH_GLOBAL = 1 << 8, WC_FLUSH = 8;
typedef void wr_flush_function(struct ibv_qp_ex *, uint32_t, uint64_t, size_t, uint8_t, uint8_t);

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static union ibv_gid gid;

struct end {
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_qp_ex *ex;
};

static void open_device(void) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    CHECK(list && list[0]);
    CHECK(context = ibv_open_device(list[0]));
    ibv_free_device_list(list);
    CHECK(pd = ibv_alloc_pd(context));
    CHECK(channel = ibv_create_comp_channel(context));
    CHECK(ibv_query_gid(context, 1, 0, &gid) == 0);
}

static struct end make_end(void) {
    struct end end = {0};
    CHECK(end.cq = ibv_create_cq(context, 64, NULL, channel, 0));
    struct ibv_qp_init_attr_ex init = {
        .send_cq = end.cq,
        .recv_cq = end.cq,
        .cap = {.max_send_wr = DEPTH, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 16},
        .qp_type = IBV_QPT_RC,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .pd = pd,
        .send_ops_flags =
            IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_ATOMIC_WRITE |
            WITH_FLUSH,
    };
    CHECK(end.qp = ibv_create_qp_ex(context, &init));
    CHECK(init.cap.max_send_wr == DEPTH);
    CHECK(end.ex = ibv_qp_to_qp_ex(end.qp));
    return end;
}

static void connect_end(struct end *end, uint32_t peer) {
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .port_num = 1,
        .qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | ACCESS_FLUSH_GLOBAL,
    };
    CHECK(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = peer,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 1,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .hop_limit = 64}},
    };
    CHECK(ibv_modify_qp(end->qp, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
    CHECK(ibv_modify_qp(end->qp, &attr,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                            IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static void connect_ends(struct end *a, struct end *b) {
    connect_end(a, b->qp->qp_num);
    connect_end(b, a->qp->qp_num);
}

static long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000L + now.tv_nsec / 1000000;
}

static struct ibv_wc next_completion(struct ibv_cq *cq) {
    struct ibv_wc wc;
    long start = now_ms();
    int found;
    while ((found = ibv_poll_cq(cq, 1, &wc)) == 0)
        CHECK(now_ms() - start < PATIENCE_MS);
    CHECK(found == 1);
    return wc;
}

static void post_recv(struct end *end, uint64_t wr_id) {
    struct ibv_recv_wr wr = {.wr_id = wr_id}, *bad;
    CHECK(ibv_post_recv(end->qp, &wr, &bad) == 0);
}

static void build_sends(struct end *end, int first, int count) {
    for (int n = first; n < first + count; n++) {
        end->ex->wr_id = n;
        end->ex->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_send(end->ex);
        ibv_wr_set_sge_list(end->ex, 0, NULL);
    }
}

/* Of a batch that does not fit, or has one request that is wrong, none is posted; and the lock is given back. */
static void check_batch(void) {
    struct end a = make_end(), b = make_end();
    connect_ends(&a, &b);
    for (int n = 0; n < DEPTH; n++)
        post_recv(&b, n);
    ibv_wr_start(a.ex);
    build_sends(&a, 0, DEPTH + 1);
    CHECK(ibv_wr_complete(a.ex) == ENOMEM);

    struct ibv_sge two[2] = {{0}};
    ibv_wr_start(a.ex);
    build_sends(&a, 0, 2);
    ibv_wr_set_sge_list(a.ex, 2, two); /* the QP has room for one */
    CHECK(ibv_wr_complete(a.ex) == EINVAL);

    ibv_wr_start(a.ex);
    build_sends(&a, 0, 3);
    ibv_wr_abort(a.ex);

    /* The queue is as empty as it was: this fills it. */
    ibv_wr_start(a.ex);
    build_sends(&a, 100, DEPTH);
    CHECK(ibv_wr_complete(a.ex) == 0);
    for (int n = 0; n < DEPTH; n++) {
        struct ibv_wc wc = next_completion(a.cq);
        CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 100 + (uint64_t)n);
    }
}

/* ATOMIC WRITE and FLUSH, through pointers where newer headers have them. */
static void check_placement(void) {
    struct end a = make_end(), b = make_end();
    connect_ends(&a, &b);
    char *memory = aligned_alloc(BYTES, BYTES);
    memset(memory, 0, BYTES);
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | ACCESS_FLUSH_GLOBAL;
    struct ibv_mr *mr = ibv_reg_mr_iova2(pd, memory, BYTES, (uintptr_t)memory, access);
    CHECK(mr);
    wr_flush_function *flush = *(wr_flush_function **)((char *)a.ex + WR_FLUSH_OFFSET);
    CHECK(flush);
    uint64_t value = 0x1122334455667788;

    ibv_wr_start(a.ex);
    a.ex->wr_id = 1;
    a.ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_atomic_write(a.ex, mr->rkey, (uintptr_t)memory + 8, &value);
    a.ex->wr_id = 2;
    flush(a.ex, mr->rkey, (uintptr_t)memory, BYTES, 1 /* global */, 0 /* range */);
    CHECK(ibv_wr_complete(a.ex) == 0);
    struct ibv_wc wc = next_completion(a.cq);
    CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 1 && wc.opcode == IBV_WC_ATOMIC_WRITE);
    wc = next_completion(a.cq);
    CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 2 && (int)wc.opcode == WC_FLUSH);
    CHECK(memcmp(memory + 8, &value, sizeof value) == 0);

    ibv_wr_start(a.ex);
    flush(a.ex, mr->rkey, (uintptr_t)memory, BYTES, 1, 2 /* there is no such level */);
    CHECK(ibv_wr_complete(a.ex) == EINVAL);
    struct ibv_device_attr_ex attr;
    CHECK(ibv_query_device_ex(context, NULL, &attr) == 0);
    CHECK(attr.device_cap_flags_ex >> 38 & 1 && attr.device_cap_flags_ex >> 40 & 1);
    /* Flush and atomic write, on memory that is registered on demand. */
    CHECK((attr.odp_caps.per_transport_caps.rc_odp_caps >> 6 & 3) == 3);
}

/* Exported, for strict mode to name it. */
__attribute__((noinline)) struct ibv_wc write_through(struct end *from, uint64_t addr, uint32_t rkey) {
    ibv_wr_start(from->ex);
    from->ex->wr_id = 9;
    from->ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(from->ex, rkey, addr);
    ibv_wr_set_inline_data(from->ex, "x", 1);
    CHECK(ibv_wr_complete(from->ex) == 0);
    return next_completion(from->cq);
}

static uint32_t with_low_bits(uint32_t rkey, uint32_t low) { return (rkey & ~0xffu) | (low & 0xff); }

/* A bind binds the window that it names, whatever the upper 24 bits of the key say, even those of another window;
 * afterwards the structure has the new key. A bind that is not posted changes nothing. */
static void check_windows(void) {
    struct end a = make_end(), b = make_end();
    connect_ends(&a, &b);
    static char memory[BYTES];
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    struct ibv_mw *named = ibv_alloc_mw(pd, IBV_MW_TYPE_2), *other = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
    CHECK(mr && named && other);
    uint32_t before = named->rkey, key_of_other = other->rkey;
    struct ibv_send_wr bind = {
        .wr_id = 1,
        .opcode = IBV_WR_BIND_MW,
        .send_flags = IBV_SEND_SIGNALED,
        .bind_mw = {.mw = named,
                    .rkey = key_of_other,
                    .bind_info = {.mr = mr, .addr = (uintptr_t)memory, .length = 64,
                                  .mw_access_flags = IBV_ACCESS_REMOTE_WRITE}},
    };
    struct ibv_send_wr write = {
        .wr_id = 2, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, .next = &bind}, *bad;
    /* Among others in a list, too. */
    CHECK(ibv_post_send(b.qp, &write, &bad) == 0);
    for (int n = 0; n < 2; n++)
        CHECK(next_completion(b.cq).status == IBV_WC_SUCCESS);
    CHECK(named->rkey == with_low_bits(before, key_of_other) && other->rkey == key_of_other);
    CHECK(write_through(&a, (uintptr_t)memory, named->rkey).status == IBV_WC_SUCCESS);

    struct ibv_mw_bind_info info = bind.bind_mw.bind_info;
    info.addr += 64;
    ibv_wr_start(b.ex);
    b.ex->wr_id = 3;
    b.ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_bind_mw(b.ex, other, 0x77, &info);
    build_sends(&b, 4, DEPTH); /* one too many */
    CHECK(ibv_wr_complete(b.ex) == ENOMEM && other->rkey == key_of_other);
    ibv_wr_start(b.ex);
    b.ex->wr_id = 3;
    ibv_wr_bind_mw(b.ex, other, with_low_bits(named->rkey, 0x77), &info);
    CHECK(ibv_wr_complete(b.ex) == 0);
    struct ibv_wc wc = next_completion(b.cq);
    CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 3 && wc.opcode == IBV_WC_BIND_MW);
    CHECK(other->rkey == with_low_bits(key_of_other, 0x77));
    CHECK(write_through(&a, info.addr, other->rkey).status == IBV_WC_SUCCESS);
    CHECK(write_through(&a, (uintptr_t)memory, named->rkey).status == IBV_WC_SUCCESS);

    bind.bind_mw.mw = NULL;
    CHECK(ibv_post_send(b.qp, &bind, &bad) == EINVAL && bad == &bind);
    ibv_wr_start(b.ex);
    ibv_wr_bind_mw(b.ex, NULL, 0, &info);
    CHECK(ibv_wr_complete(b.ex) == EINVAL);
    CHECK(ibv_dealloc_mw(named) == 0 && ibv_dealloc_mw(other) == 0);
}

/* A path as for InfiniBand; posts that are refused; a write with a key that no region has, and what is flushed behind
 * it. */
static void check_verbose(void) {
    struct ibv_ah_attr without_grh = {.dlid = 1, .port_num = 1};
    CHECK(ibv_create_ah(pd, &without_grh) == NULL && errno == EINVAL);
    struct end a = make_end(), b = make_end(), c = make_end(), d = make_end();
    connect_ends(&a, &b);
    connect_ends(&c, &d);
    struct ibv_send_wr wr = {.opcode = 99, .send_flags = IBV_SEND_SIGNALED}, *bad;
    CHECK(ibv_post_send(a.qp, &wr, &bad) == EINVAL);
    /* Without receives the sends stay, and the queue is full. */
    ibv_wr_start(c.ex);
    build_sends(&c, 0, DEPTH);
    CHECK(ibv_wr_complete(c.ex) == 0);
    wr.opcode = IBV_WR_SEND;
    for (int n = 0; n < 3; n++)
        CHECK(ibv_post_send(c.qp, &wr, &bad) == ENOMEM);

    struct ibv_send_wr list[DEPTH];
    for (int n = 0; n < DEPTH; n++)
        list[n] = (struct ibv_send_wr){
            .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE, .next = &list[n + 1]};
    struct ibv_sge sge = {.addr = (uintptr_t) "x", .length = 1};
    list[0].sg_list = &sge;
    list[0].num_sge = 1;
    list[0].wr.rdma.rkey = 0xdead;
    list[DEPTH - 1].next = NULL;
    CHECK(ibv_post_send(a.qp, list, &bad) == 0);
    CHECK(next_completion(a.cq).status == IBV_WC_REM_ACCESS_ERR);
    for (int n = 1; n < DEPTH; n++)
        CHECK(next_completion(a.cq).status == IBV_WC_WR_FLUSH_ERR);
    CHECK(ibv_destroy_qp(a.qp) == 0);
}

/* A number of six bits in a field of five (DLSlime gives 32): the low ones are taken. */
static void check_timer(void) {
    struct end end = make_end();
    connect_end(&end, end.qp->qp_num);
    struct ibv_qp_attr attr = {.min_rnr_timer = 32 + 9};
    CHECK(ibv_modify_qp(end.qp, &attr, IBV_QP_MIN_RNR_TIMER) == 0);
    struct ibv_qp_init_attr init;
    CHECK(ibv_query_qp(end.qp, &attr, IBV_QP_MIN_RNR_TIMER, &init) == 0 && attr.min_rnr_timer == 9);
}

/* The same by the other interface: to strict mode it is another place. */
__attribute__((noinline)) struct ibv_wc post_write_through(struct end *from, uint64_t addr, uint32_t rkey) {
    struct ibv_sge sge = {.addr = (uintptr_t) "x", .length = 1};
    struct ibv_send_wr *bad, wr = {
        .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
        .sg_list = &sge,
        .num_sge = 1,
        .wr.rdma = {.remote_addr = addr, .rkey = rkey},
    };
    CHECK(ibv_post_send(from->qp, &wr, &bad) == 0);
    return next_completion(from->cq);
}

/* An lkey where the rkey belongs: one number, as with most adapters, but for strict mode. */
static void check_one_key(void) {
    static char memory[64];
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    CHECK(mr && mr->lkey == mr->rkey);
    struct end a = make_end(), b = make_end();
    connect_ends(&a, &b);
    CHECK(write_through(&a, (uintptr_t)memory, mr->lkey).status == IBV_WC_SUCCESS);
    CHECK(memory[0] == 'x');
    /* It opens what the region's rights open, and no more. */
    struct ibv_mr *closed = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    CHECK(closed && closed->lkey == closed->rkey);
    CHECK(write_through(&a, (uintptr_t)memory, closed->lkey).status == IBV_WC_REM_ACCESS_ERR);
    CHECK(ibv_dereg_mr(closed) == 0 && ibv_dereg_mr(mr) == 0);
}

/* There the two differ, and it is refused and told. */
static void check_strict(void) {
    static char memory[64];
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    CHECK(mr && (mr->lkey != mr->rkey) == (getenv("URXE_STRICT") != NULL));
    enum ibv_wc_status wanted = mr->lkey == mr->rkey ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR;
    struct ibv_wc (*const functions[])(struct end *, uint64_t, uint32_t) = {write_through, post_write_through};
    for (int n = 0; n < 2; n++) {
        struct end a = make_end(), b = make_end();
        connect_ends(&a, &b);
        CHECK(functions[n](&a, (uintptr_t)memory, mr->lkey).status == wanted);
    }
}

/* What is zero-based counts its addresses from its beginning: a region, and a window of a region that is not. */
static void check_zero_based(void) {
    struct end a = make_end(), b = make_end();
    connect_ends(&a, &b);
    static char memory[BYTES];
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    struct ibv_mr *zero = ibv_reg_mr(pd, memory, BYTES, access | IBV_ACCESS_ZERO_BASED);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, BYTES, access | IBV_ACCESS_MW_BIND);
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
    CHECK(zero && mr && mw);
    CHECK(write_through(&a, 5, zero->rkey).status == IBV_WC_SUCCESS && memory[5] == 'x');
    struct ibv_send_wr bind = {
        .opcode = IBV_WR_BIND_MW,
        .send_flags = IBV_SEND_SIGNALED,
        .bind_mw = {.mw = mw,
                    .bind_info = {.mr = mr, .addr = (uintptr_t)memory + 64, .length = 8,
                                  .mw_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED}},
    }, *bad;
    CHECK(ibv_post_send(b.qp, &bind, &bad) == 0 && next_completion(b.cq).status == IBV_WC_SUCCESS);
    CHECK(write_through(&a, 7, mw->rkey).status == IBV_WC_SUCCESS && memory[71] == 'x');
    CHECK(write_through(&a, 8, mw->rkey).status == IBV_WC_REM_ACCESS_ERR && memory[72] == 0);
}

static int is_readable(int fd, int timeout_ms) {
    struct pollfd it = {.fd = fd, .events = POLLIN};
    int ready = poll(&it, 1, timeout_ms);
    CHECK(ready >= 0);
    return ready;
}

/* Entries in packed structures, as libiscsi has them: any address will do. */
static void check_packed(void) {
    struct __attribute__((packed)) {
        char odd;
        struct ibv_sge sge[4];
    } lists;
    struct end a = make_end(), b = make_end();
    connect_ends(&a, &b);
    static char memory[4] = "ab";
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr);
    for (int n = 0; n < 4; n++) {
        struct ibv_sge sge = {(uintptr_t)memory + n, 1, mr->lkey};
        memcpy(&lists.sge[n], &sge, sizeof sge);
    }
    /* As a plain pointer, which may be odd. */
    char *at = &lists.odd + 1;
    struct ibv_sge *list = (void *)at;
    struct ibv_recv_wr second = {.wr_id = 3, .sg_list = list + 2, .num_sge = 1}, *bad_recv;
    struct ibv_recv_wr first = {.wr_id = 2, .next = &second, .sg_list = list + 3, .num_sge = 1};
    CHECK(ibv_post_recv(b.qp, &first, &bad_recv) == 0);
    struct ibv_send_wr last = {
        .wr_id = 1, .sg_list = list + 1, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
    struct ibv_send_wr wr = {.next = &last, .sg_list = list, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
    CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
    CHECK(next_completion(b.cq).wr_id == 2 && next_completion(b.cq).wr_id == 3);
    CHECK(memory[3] == 'a' && memory[2] == 'b');
    CHECK(next_completion(a.cq).status == IBV_WC_SUCCESS);
    /* More than there are in any request. */
    wr = (struct ibv_send_wr){.sg_list = list, .num_sge = 1 << 20, .opcode = IBV_WR_SEND};
    CHECK(ibv_post_send(a.qp, &wr, &bad) != 0 && bad == &wr);
}

static void set_non_blocking(int fd) {
    CHECK(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0);
}

/* A descriptor is readable as long as there are events, one after the other; without one, and non-blocking, asking
 * fails with EAGAIN. */
static void check_events(void) {
    struct end a = make_end(), b = make_end();
    connect_ends(&a, &b);
    struct ibv_cq *cq;
    void *cq_context;
    /* A queue without a channel has no events, and that is no error. */
    CHECK(cq = ibv_create_cq(context, 1, NULL, NULL, 0));
    CHECK(ibv_req_notify_cq(cq, 0) == 0 && ibv_destroy_cq(cq) == 0);
    set_non_blocking(channel->fd);
    CHECK(!is_readable(channel->fd, 0));
    CHECK(ibv_get_cq_event(channel, &cq, &cq_context) == -1 && errno == EAGAIN);
    post_recv(&b, 1);
    CHECK(ibv_req_notify_cq(a.cq, 0) == 0 && ibv_req_notify_cq(b.cq, 0) == 0);
    ibv_wr_start(a.ex);
    build_sends(&a, 7, 1);
    CHECK(ibv_wr_complete(a.ex) == 0);
    struct ibv_cq *seen[2];
    for (int n = 0; n < 2; n++) {
        CHECK(is_readable(channel->fd, PATIENCE_MS));
        CHECK(ibv_get_cq_event(channel, &seen[n], &cq_context) == 0);
    }
    CHECK((seen[0] == a.cq && seen[1] == b.cq) || (seen[0] == b.cq && seen[1] == a.cq));
    CHECK(!is_readable(channel->fd, 0));
    CHECK(ibv_get_cq_event(channel, &cq, &cq_context) == -1 && errno == EAGAIN);
    CHECK(a.cq->comp_events_completed == 0);
    ibv_ack_cq_events(a.cq, 1);
    ibv_ack_cq_events(b.cq, 1);
    CHECK(a.cq->comp_events_completed == 1 && b.cq->comp_events_completed == 1);
    CHECK(next_completion(a.cq).status == IBV_WC_SUCCESS && next_completion(b.cq).status == IBV_WC_SUCCESS);
    /* A second event was not asked for. */
    CHECK(!is_readable(channel->fd, 0));

    struct ibv_async_event event;
    set_non_blocking(context->async_fd);
    CHECK(!is_readable(context->async_fd, 0));
    CHECK(ibv_get_async_event(context, &event) == -1 && errno == EAGAIN);
    ibv_wr_start(a.ex);
    a.ex->wr_id = 8;
    ibv_wr_rdma_write(a.ex, 0xdead, 0);
    ibv_wr_set_inline_data(a.ex, "x", 1);
    CHECK(ibv_wr_complete(a.ex) == 0);
    CHECK(next_completion(a.cq).status == IBV_WC_REM_ACCESS_ERR);
    CHECK(is_readable(context->async_fd, PATIENCE_MS));
    CHECK(ibv_get_async_event(context, &event) == 0);
    CHECK(event.event_type == IBV_EVENT_QP_ACCESS_ERR && event.element.qp == b.qp);
    CHECK(b.qp->events_completed == 0);
    ibv_ack_async_event(&event);
    CHECK(b.qp->events_completed == 1);
    CHECK(!is_readable(context->async_fd, 0));
    CHECK(ibv_get_async_event(context, &event) == -1 && errno == EAGAIN);
    CHECK(ibv_destroy_qp(a.qp) == 0 && ibv_destroy_qp(b.qp) == 0);
    CHECK(ibv_destroy_cq(a.cq) == 0 && ibv_destroy_cq(b.cq) == 0);
    CHECK(ibv_destroy_comp_channel(channel) == 0);
}

/* Functions of releases newer than the header. */
static void check_newer(void) {
    void *(*alloc_buf)(struct ibv_pd *, size_t, void **) = dlvsym(RTLD_DEFAULT, "ibv_alloc_buf", "IBVERBS_1.17");
    struct ibv_mr *(*reg_buf_mr)(struct ibv_pd *, void *, void *, size_t, int) =
        dlvsym(RTLD_DEFAULT, "ibv_reg_buf_mr", "IBVERBS_1.17");
    void (*free_buf)(void *) = dlvsym(RTLD_DEFAULT, "ibv_free_buf", "IBVERBS_1.17");
    int (*port_speed)(struct ibv_context *, uint32_t, uint64_t *) =
        dlvsym(RTLD_DEFAULT, "ibv_query_port_speed", "IBVERBS_1.16");
    int (*export_dm)(struct ibv_dm *) = dlvsym(RTLD_DEFAULT, "ibv_dm_export_dmabuf_fd", "IBVERBS_1.16");
    CHECK(alloc_buf && reg_buf_mr && free_buf && port_speed && export_dm);
    void *buf;
    char *memory = alloc_buf(pd, 2 * BYTES, &buf);
    CHECK(memory);
    memory[2 * BYTES - 1] = 1;
    struct ibv_mr *mr = reg_buf_mr(pd, buf, memory + BYTES, BYTES, IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr && mr->addr == memory + BYTES && mr->length == BYTES);
    CHECK(!reg_buf_mr(pd, buf, memory + BYTES, BYTES + 1, IBV_ACCESS_LOCAL_WRITE) && errno == EINVAL);
    CHECK(!reg_buf_mr(pd, buf, memory - 1, 1, IBV_ACCESS_LOCAL_WRITE) && errno == EINVAL);
    CHECK(ibv_dereg_mr(mr) == 0);
    free_buf(buf);
    uint64_t speed = 0;
    struct ibv_port_attr port;
    CHECK(ibv_query_port(context, 1, &port) == 0 && port.active_width == 2 && port.active_speed == 32);
    CHECK(port_speed(context, 1, &speed) == 0 && speed == 1000);
    CHECK(port_speed(context, 2, &speed) == EINVAL);
    CHECK(export_dm(NULL) == -1 && errno == EOPNOTSUPP);
    const char *(*opcode_name)(int) = dlvsym(RTLD_DEFAULT, "ibv_wr_opcode_str", "IBVERBS_PRIVATE_34");
    CHECK(opcode_name && !strcmp(opcode_name(IBV_WR_TSO), "tso") && !strcmp(opcode_name(16), "unknown"));
    CHECK(!strcmp(opcode_name(15), "atomic-write") && !strcmp(opcode_name(-1), "unknown"));
}

/* Regions by a structure, and of buffers that the library brings: both newer than the header. */
static void check_buffers(void) {
    enum { IOVA = 1 << 0, ADDR = 1 << 1, FD = 1 << 2, BUF = 1 << 5, PAGE = 4096 };
    struct {
        size_t length;
        int access;
        uint64_t comp_mask, iova;
        void *addr;
        int fd;
        uint64_t fd_offset;
        void *dmah, *buf;
    } attr = {.length = BYTES, .access = IBV_ACCESS_LOCAL_WRITE, .fd = -1};
    struct ibv_mr *(*reg_mr_ex)(struct ibv_pd *, void *) = dlvsym(RTLD_DEFAULT, "ibv_reg_mr_ex", "IBVERBS_1.15");
    void *(*alloc_buf)(struct ibv_pd *, size_t, void **) = dlvsym(RTLD_DEFAULT, "ibv_alloc_buf", "IBVERBS_1.17");
    struct ibv_mr *(*reg_buf_mr)(struct ibv_pd *, void *, void *, size_t, int) =
        dlvsym(RTLD_DEFAULT, "ibv_reg_buf_mr", "IBVERBS_1.17");
    void (*free_buf)(void *) = dlvsym(RTLD_DEFAULT, "ibv_free_buf", "IBVERBS_1.17");
    int (*export_buf)(void *) = dlvsym(RTLD_DEFAULT, "ibv_export_buf_dmabuf_fd", "IBVERBS_1.18");
    CHECK(reg_mr_ex && alloc_buf && reg_buf_mr && free_buf && export_buf);

    /* Where there is no memory, nothing is registered, unless it is to be looked for when it is needed. */
    char *pages = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED && munmap(pages + PAGE, PAGE) == 0);
    CHECK(!ibv_reg_mr(pd, pages + 8, 2 * PAGE, IBV_ACCESS_LOCAL_WRITE) && errno == EFAULT);
    struct ibv_mr *late = ibv_reg_mr(pd, pages, 3 * PAGE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
    CHECK(late && ibv_dereg_mr(late) == 0);
    CHECK((late = ibv_reg_mr(pd, pages + 8, PAGE - 8, IBV_ACCESS_LOCAL_WRITE)));
    int changed = ibv_rereg_mr(late, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, pages, PAGE + 1, 0);
    CHECK(changed == IBV_REREG_MR_ERR_INPUT && errno == EFAULT && ibv_dereg_mr(late) == 0);

    /* What the mask does not name is not looked at. */
    char *memory = alloc_buf(pd, 2 * BYTES, &attr.buf);
    CHECK(memory);
    attr.addr = memory + BYTES;
    attr.iova = 4096;
    CHECK(!reg_mr_ex(pd, &attr) && errno == EINVAL);
    attr.comp_mask = ADDR;
    struct ibv_mr *mr = reg_mr_ex(pd, &attr);
    CHECK(mr && mr->addr == attr.addr && mr->length == BYTES && mr->pd == pd && ibv_dereg_mr(mr) == 0);
    attr.comp_mask = ADDR | IOVA | BUF;
    CHECK((mr = reg_mr_ex(pd, &attr)) && ibv_dereg_mr(mr) == 0);
    attr.length++;
    CHECK(!reg_mr_ex(pd, &attr) && errno == EINVAL);
    attr.comp_mask = ADDR | FD;
    CHECK(!reg_mr_ex(pd, &attr) && errno == EOPNOTSUPP);

    /* Another domain's. */
    struct ibv_pd *other = ibv_alloc_pd(context);
    CHECK(other);
    CHECK(!reg_buf_mr(other, attr.buf, memory, BYTES, IBV_ACCESS_LOCAL_WRITE) && errno == EINVAL);
    CHECK(export_buf(attr.buf) == -1 && errno == ENODATA);
    free_buf(attr.buf);

    /* Memory that an adapter may reach from outside of a confidential guest: a promise that costs nothing here. */
    struct ibv_parent_domain_init_attr parent = {.pd = other, .comp_mask = 1 << 2};
    struct ibv_pd *open = ibv_alloc_parent_domain(context, &parent);
    CHECK(open && (memory = alloc_buf(open, BYTES, &attr.buf)));
    CHECK((mr = reg_buf_mr(open, attr.buf, memory, BYTES, IBV_ACCESS_LOCAL_WRITE)) && ibv_dereg_mr(mr) == 0);
    free_buf(attr.buf);
    parent.comp_mask = 1 << 3;
    CHECK(!ibv_alloc_parent_domain(context, &parent) && errno == EINVAL);
    CHECK(ibv_dealloc_pd(open) == 0 && ibv_dealloc_pd(other) == 0);
}

/* An import of what is no command descriptor fails, and takes nothing; a domain with two handles goes once. */
static void check_import(void) {
    int other = open("/dev/null", O_RDWR);
    CHECK(other >= 0);
    CHECK(!ibv_import_device(other) && errno == EOPNOTSUPP);
    CHECK(fcntl(other, F_GETFD) >= 0);
    CHECK(!ibv_import_device(-1) && errno == EBADF);
    struct ibv_context *second = ibv_import_device(dup(context->cmd_fd));
    CHECK(second && second->device == context->device);
    CHECK(!ibv_import_pd(second, 12345) && errno == EINVAL);
    struct ibv_pd *same = ibv_import_pd(second, pd->handle);
    CHECK(same && same->handle == pd->handle && same->context == second);
    static char memory[64];
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr);
    struct ibv_mr *again = ibv_import_mr(same, mr->handle);
    CHECK(again && again->lkey == mr->lkey && again->length == mr->length && !again->addr);
    /* It is one domain, and in use. */
    CHECK(ibv_dealloc_pd(same) == EBUSY);
    ibv_unimport_mr(again);
    CHECK(ibv_dereg_mr(mr) == 0);
    CHECK(!ibv_import_mr(same, 0x7fffffff) && errno == EINVAL);
    CHECK(ibv_dealloc_pd(same) == 0);
    ibv_unimport_pd(pd);
    CHECK(ibv_close_device(second) == 0);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*check)(void);
    } checks[] = {
        {"batch", check_batch}, {"placement", check_placement}, {"events", check_events},
        {"newer", check_newer}, {"import", check_import},       {"windows", check_windows},
        {"verbose", check_verbose}, {"strict", check_strict},   {"timer", check_timer},
        {"one_key", check_one_key},
        {"zero_based", check_zero_based}, {"buffers", check_buffers},  {"packed", check_packed},
    };
    CHECK(argc >= 2);
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
