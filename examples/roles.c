/* The three roles of a connection by address, step by step, in C as for any RDMA adapter: a listener that never moves data, an agent
 * for each client that it accepts, and a client.
 *
 *     cc -o roles examples/roles.c -lrdmacm -libverbs -lpthread
 *     urxe run -- ./roles listen 7471 3 &            for three clients; 0 is for any number
 *     urxe run -- ./roles client 127.0.0.1 7471
 *
 * The numbers count the calls of a role in the order in which a program makes them.
 */
#include <errno.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGES = 100, BYTES = 64 };

static void check(int is_fine, const char *what) {
    if (!is_fine) {
        fprintf(stderr, "%s: %s\n", what, strerror(errno));
        exit(1);
    }
}

/* The next completion, polled for: ibv_poll_cq does not wait. */
static struct ibv_wc completion(struct ibv_cq *cq) {
    struct ibv_wc wc;
    int count;
    while ((count = ibv_poll_cq(cq, 1, &wc)) == 0)
        ;
    check(count == 1, "ibv_poll_cq");
    return wc;
}

static void expect(struct ibv_cq *cq, enum ibv_wc_opcode opcode) {
    struct ibv_wc wc = completion(cq);
    if (wc.status != IBV_WC_SUCCESS || wc.opcode != opcode) {
        fprintf(stderr, "%s where opcode %d was expected\n", ibv_wc_status_str(wc.status), opcode);
        exit(1);
    }
}

/* A QP of the connection, with a completion queue for each direction: which of a SEND's completion and of its answer comes first is
 * not told by the standard. They are the QP's afterwards. */
static void create_qp(struct rdma_cm_id *id) {
    struct ibv_cq *sent = ibv_create_cq(id->verbs, 4, NULL, NULL, 0), *received = ibv_create_cq(id->verbs, 4, NULL, NULL, 0);
    check(sent && received, "ibv_create_cq");
    struct ibv_qp_init_attr init = {
        .send_cq = sent,
        .recv_cq = received,
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = 1,
        .cap = {.max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = BYTES},
    };
    check(rdma_create_qp(id, NULL, &init) == 0, "rdma_create_qp");
}

static void destroy(struct rdma_cm_id *id) {
    struct ibv_cq *sent = id->qp->send_cq, *received = id->qp->recv_cq;
    rdma_destroy_qp(id);
    check(ibv_destroy_cq(sent) == 0 && ibv_destroy_cq(received) == 0, "ibv_destroy_cq");
    rdma_destroy_ep(id);
}

static struct rdma_addrinfo *resolved(const char *host, const char *port) {
    struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = host ? 0 : RAI_PASSIVE}, *address;
    check(rdma_getaddrinfo(host, port, &hints, &address) == 0, "rdma_getaddrinfo");
    return address;
}

/* What a client sends last: an agent has no other way to know that no message comes any more. */
static const char LAST[BYTES] = "the last";

/* One client's agent: everything that the client sends goes back to it. */
static void *agent(void *argument) {
    struct rdma_cm_id *id = argument;
    /* 1 ibv_create_cq, 2 rdma_create_qp */
    create_qp(id);
    /* 3 memory, 4 rdma_reg_msgs */
    char *message = malloc(BYTES);
    struct ibv_mr *mr = message ? rdma_reg_msgs(id, message, BYTES) : NULL;
    check(mr != NULL, "rdma_reg_msgs");
    /* 5 rdma_post_recv before 6 rdma_accept: what the client sends at once has to find a receive. */
    check(rdma_post_recv(id, NULL, message, BYTES, mr) == 0, "rdma_post_recv");
    check(rdma_accept(id, NULL) == 0, "rdma_accept");
    int count = 0, is_last = 0;
    while (!is_last) {
        /* 7 ibv_poll_cq */
        expect(id->qp->recv_cq, IBV_WC_RECV);
        count++;
        char back[BYTES];
        memcpy(back, message, BYTES);
        is_last = memcmp(back, LAST, BYTES) == 0;
        /* 8 rdma_post_recv for the next message, which comes when the client has this one back: 9 rdma_post_send, 10 ibv_poll_cq */
        if (!is_last)
            check(rdma_post_recv(id, NULL, message, BYTES, mr) == 0, "rdma_post_recv");
        check(rdma_post_send(id, NULL, back, BYTES, NULL, IBV_SEND_INLINE) == 0, "rdma_post_send");
        expect(id->qp->send_cq, IBV_WC_SEND);
    }
    /* 11 the client disconnects; an agent that did it first could take the last answer away */
    struct rdma_cm_event *event;
    check(rdma_get_cm_event(id->channel, &event) == 0, "rdma_get_cm_event");
    printf("agent: %d messages, %s\n", count, rdma_event_str(event->event));
    fflush(stdout);
    rdma_ack_cm_event(event);
    /* 12 rdma_disconnect, 13 rdma_dereg_mr, 14 free, 15 rdma_destroy_qp, 16 ibv_destroy_cq, 17 rdma_destroy_ep */
    rdma_disconnect(id);
    check(rdma_dereg_mr(mr) == 0, "rdma_dereg_mr");
    free(message);
    destroy(id);
    return NULL;
}

static void listener(const char *port, int limit) {
    /* 1 rdma_getaddrinfo, 2 rdma_create_ep without a QP: the agents make theirs; 3 rdma_listen */
    struct rdma_addrinfo *address = resolved(NULL, port);
    struct rdma_cm_id *listening;
    check(rdma_create_ep(&listening, address, NULL, NULL) == 0, "rdma_create_ep");
    rdma_freeaddrinfo(address);
    check(rdma_listen(listening, 16) == 0, "rdma_listen");
    printf("listening\n");
    fflush(stdout);
    pthread_t *agents = calloc(limit ? limit : 1, sizeof *agents);
    check(agents != NULL, "calloc");
    for (int count = 0; !limit || count < limit; count++) {
        /* 4 rdma_get_request waits for the next client; 5 an agent takes it over. */
        struct rdma_cm_id *id;
        check(rdma_get_request(listening, &id) == 0, "rdma_get_request");
        pthread_t *thread = &agents[limit ? count : 0];
        errno = pthread_create(thread, NULL, agent, id);
        check(errno == 0, "pthread_create");
        if (!limit)
            pthread_detach(*thread);
    }
    for (int count = 0; count < limit; count++)
        pthread_join(agents[count], NULL);
    free(agents);
    /* 6 rdma_destroy_ep */
    rdma_destroy_ep(listening);
}

static void client(const char *host, const char *port) {
    /* 1 rdma_getaddrinfo, 2 rdma_create_ep, which resolves address and route; 3 ibv_create_cq, 4 rdma_create_qp */
    struct rdma_addrinfo *address = resolved(host, port);
    struct rdma_cm_id *id;
    check(rdma_create_ep(&id, address, NULL, NULL) == 0, "rdma_create_ep");
    rdma_freeaddrinfo(address);
    create_qp(id);
    /* 5 memory, 6 rdma_reg_msgs: one region for what is sent, one for what comes back */
    char *message = malloc(BYTES), *answer = malloc(BYTES);
    check(message && answer, "malloc");
    struct ibv_mr *mr = rdma_reg_msgs(id, message, BYTES), *answer_mr = rdma_reg_msgs(id, answer, BYTES);
    check(mr && answer_mr, "rdma_reg_msgs");
    /* 7 rdma_connect */
    check(rdma_connect(id, NULL) == 0, "rdma_connect");
    for (int count = 0; count < MESSAGES; count++) {
        /* 8 rdma_post_recv before 9 rdma_post_send: the answer has to find a receive. */
        memset(message, 0, BYTES);
        snprintf(message, BYTES, "message %d", count);
        if (count == MESSAGES - 1)
            memcpy(message, LAST, BYTES);
        check(rdma_post_recv(id, NULL, answer, BYTES, answer_mr) == 0, "rdma_post_recv");
        check(rdma_post_send(id, NULL, message, BYTES, mr, 0) == 0, "rdma_post_send");
        /* 10 ibv_poll_cq for the SEND, 11 ibv_poll_cq for the answer */
        expect(id->qp->send_cq, IBV_WC_SEND);
        expect(id->qp->recv_cq, IBV_WC_RECV);
        /* 12 memcmp */
        check(memcmp(message, answer, BYTES) == 0, "the answer is another");
    }
    printf("client: %d messages there and back\n", MESSAGES);
    /* 13 rdma_disconnect, 14 rdma_dereg_mr, 15 free, 16 rdma_destroy_qp, 17 ibv_destroy_cq, 18 rdma_destroy_ep */
    rdma_disconnect(id);
    check(rdma_dereg_mr(mr) == 0 && rdma_dereg_mr(answer_mr) == 0, "rdma_dereg_mr");
    free(message);
    free(answer);
    destroy(id);
}

int main(int argc, char **argv) {
    if (argc == 4 && !strcmp(argv[1], "listen"))
        listener(argv[2], atoi(argv[3]));
    else if (argc == 4 && !strcmp(argv[1], "client"))
        client(argv[2], argv[3]);
    else {
        fprintf(stderr, "usage: %s listen PORT CLIENTS | client HOST PORT\n", argv[0]);
        return 2;
    }
    return 0;
}
