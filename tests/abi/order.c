/* A message is acknowledged before its answer: `order NAME` has two processes exchange messages, and ends with 0 if the sender
 * of each sees its completion before that of the answer.
 *   events   one queue for all completions, armed when an event comes and then polled until it is empty
 *   poll     one queue, polled
 *   queues   a queue for sends and one for receives, polled
 *   other    the answer comes on another queue pair */
#include <infiniband/verbs.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { ROUNDS = 300, BYTES = 64, ANSWER = 2 };
static const int PATIENCE_S = 20;

struct side {
    struct ibv_context *context;
    struct ibv_comp_channel *channel;
    struct ibv_cq *sends, *receives;
    struct ibv_qp *ask, *answer;
    struct ibv_mr *mr;
    union ibv_gid gid;
    char bytes[2 * BYTES];
};

struct card {
    uint32_t ask, answer, rkey;
    uint64_t addr;
    union ibv_gid gid;
};

static const char *mode;

static struct ibv_qp *make_qp(struct side *side, struct ibv_pd *pd) {
    struct ibv_qp_init_attr init = {
        .send_cq = side->sends,
        .recv_cq = side->receives,
        .cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
    struct ibv_qp *qp;
    CHECK(qp = ibv_create_qp(pd, &init));
    return qp;
}

static void open_side(struct side *side) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_pd *pd;
    CHECK(list && list[0]);
    CHECK(side->context = ibv_open_device(list[0]));
    CHECK(pd = ibv_alloc_pd(side->context));
    CHECK(ibv_query_gid(side->context, 1, 0, &side->gid) == 0);
    CHECK(side->channel = ibv_create_comp_channel(side->context));
    CHECK(side->sends = side->receives = ibv_create_cq(side->context, 64, NULL, side->channel, 0));
    if (!strcmp(mode, "queues"))
        CHECK(side->receives = ibv_create_cq(side->context, 64, NULL, NULL, 0));
    side->ask = side->answer = make_qp(side, pd);
    if (!strcmp(mode, "other"))
        side->answer = make_qp(side, pd);
    CHECK(side->mr = ibv_reg_mr(pd, side->bytes, sizeof side->bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
}

static void connect_qp(struct ibv_qp *qp, uint32_t peer, const union ibv_gid *gid) {
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = peer,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 1,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = *gid, .hop_limit = 64}},
    };
    CHECK(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
    CHECK(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                            IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static void post_recv(struct side *side, struct ibv_qp *qp) {
    struct ibv_sge sge = {(uintptr_t)side->bytes, BYTES, side->mr->lkey};
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
    CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
}

static void post(struct side *side, struct ibv_qp *qp, enum ibv_wr_opcode opcode, const struct card *peer) {
    struct ibv_sge sge = {(uintptr_t)side->bytes, BYTES, side->mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED}, *bad;
    wr.wr.rdma.remote_addr = peer->addr + BYTES;
    wr.wr.rdma.rkey = peer->rkey;
    CHECK(ibv_post_send(qp, &wr, &bad) == 0);
}

/* The next completion of a queue that it is known to come to. */
static struct ibv_wc next(struct side *side, struct ibv_cq *cq) {
    struct ibv_wc wc;
    time_t start = time(NULL);
    int found;
    while ((found = ibv_poll_cq(cq, 1, &wc)) == 0) {
        CHECK(time(NULL) - start < PATIENCE_S);
        if (!strcmp(mode, "events")) {
            struct ibv_cq *told;
            void *nothing;
            CHECK(ibv_get_cq_event(side->channel, &told, &nothing) == 0);
            ibv_ack_cq_events(told, 1);
            CHECK(ibv_req_notify_cq(told, 0) == 0);
        }
    }
    CHECK(found == 1 && wc.status == IBV_WC_SUCCESS);
    return wc;
}

/* Sends messages, and looks whether their completions come before those of the answers. */
static void ask(struct side *side, const struct card *peer) {
    for (int round = 0; round < ROUNDS; round++) {
        post_recv(side, side->answer);
        post(side, side->ask, IBV_WR_SEND, peer);
        if (side->sends == side->receives) {
            CHECK(next(side, side->sends).opcode == IBV_WC_SEND);
            CHECK(next(side, side->sends).opcode == IBV_WC_RECV);
        } else {
            struct ibv_wc wc;
            CHECK(next(side, side->receives).opcode == IBV_WC_RECV);
            CHECK(ibv_poll_cq(side->sends, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
        }
    }
}

/* Answers each message with a WRITE and a SEND, as soon as it is there. */
static void answer(struct side *side, const struct card *peer) {
    int left = 0;
    for (int round = 0; round < ROUNDS;) {
        struct ibv_wc wc = next(side, side->receives);
        if (wc.opcode != IBV_WC_RECV) {
            left--;
            continue;
        }
        round++;
        post(side, side->answer, IBV_WR_RDMA_WRITE, peer);
        post(side, side->answer, IBV_WR_SEND, peer);
        post_recv(side, side->ask);
        left += ANSWER;
        if (side->sends != side->receives)
            for (; left > 0; left--)
                next(side, side->sends);
    }
    for (; left > 0; left--)
        next(side, side->sends);
}

int main(int argc, char **argv) {
    CHECK(argc >= 2);
    mode = argv[1];
    int ends[2], status;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    int end = ends[child == 0];
    close(ends[child != 0]);

    struct side side = {0};
    struct card mine, peer;
    open_side(&side);
    mine = (struct card){side.ask->qp_num, side.answer->qp_num, side.mr->rkey, (uintptr_t)side.bytes, side.gid};
    CHECK(write(end, &mine, sizeof mine) == sizeof mine);
    CHECK(recv(end, &peer, sizeof peer, MSG_WAITALL) == sizeof peer);
    connect_qp(side.ask, peer.ask, &peer.gid);
    if (side.answer != side.ask)
        connect_qp(side.answer, peer.answer, &peer.gid);
    if (!strcmp(mode, "events"))
        CHECK(ibv_req_notify_cq(side.sends, 0) == 0);
    if (child)
        for (int n = 0; n < 4; n++)
            post_recv(&side, side.ask);
    char ready = 1;
    CHECK(write(end, &ready, 1) == 1 && read(end, &ready, 1) == 1);
    if (child == 0) {
        ask(&side, &peer);
        /* What is left unacknowledged is asked for again: the other side stays. */
        CHECK(write(end, &ready, 1) == 1 && read(end, &ready, 1) == 1);
        return 0;
    }
    answer(&side, &peer);
    CHECK(write(end, &ready, 1) == 1 && read(end, &ready, 1) == 1);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return 0;
}
