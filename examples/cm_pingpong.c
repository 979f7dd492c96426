/* Ping-pong by the connection manager, in C as for any RDMA adapter:
 *
 *     cc -o cm_pingpong examples/cm_pingpong.c -lrdmacm -libverbs
 *     urxe run -- ./cm_pingpong &
 *     urxe run -- ./cm_pingpong 127.0.0.1
 *
 * Without an address it waits for one client; with one it sends that server messages, and expects each of them back.
 */
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGES = 1000, BYTES = 64 };

static void check(int is_fine, const char *what) {
    if (!is_fine) {
        fprintf(stderr, "%s: %s\n", what, strerror(errno));
        exit(1);
    }
}

static struct ibv_qp_init_attr attributes(void) {
    return (struct ibv_qp_init_attr){
        .cap = {.max_send_wr = 1, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1},
        .sq_sig_all = 1,
    };
}

static void receive(struct rdma_cm_id *id) {
    struct ibv_wc wc;
    check(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS, "receiving");
}

static void send_and_wait(struct rdma_cm_id *id, char *message, struct ibv_mr *mr) {
    struct ibv_wc wc;
    check(rdma_post_send(id, NULL, message, BYTES, mr, 0) == 0, "rdma_post_send");
    check(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS, "sending");
}

static void serve(struct rdma_addrinfo *address) {
    struct ibv_qp_init_attr init = attributes();
    struct rdma_cm_id *listener, *id;
    char message[BYTES];
    check(rdma_create_ep(&listener, address, NULL, &init) == 0, "rdma_create_ep");
    check(rdma_listen(listener, 1) == 0, "rdma_listen");
    check(rdma_get_request(listener, &id) == 0, "rdma_get_request");
    struct ibv_mr *mr = rdma_reg_msgs(id, message, BYTES);
    check(mr != NULL, "rdma_reg_msgs");
    /* Before accepting: what the client sends at once has to find it. */
    check(rdma_post_recv(id, NULL, message, BYTES, mr) == 0, "rdma_post_recv");
    check(rdma_accept(id, NULL) == 0, "rdma_accept");
    for (int count = 1; count <= MESSAGES; count++) {
        receive(id);
        /* The client sends the next one when it has this one back, and not before. */
        if (count < MESSAGES)
            check(rdma_post_recv(id, NULL, message, BYTES, mr) == 0, "rdma_post_recv");
        send_and_wait(id, message, mr);
    }
    /* The client ends the connection. */
    struct rdma_cm_event *event;
    check(rdma_get_cm_event(id->channel, &event) == 0, "rdma_get_cm_event");
    printf("%s\n", rdma_event_str(event->event));
    rdma_ack_cm_event(event);
    rdma_disconnect(id);
    rdma_dereg_mr(mr);
    rdma_destroy_ep(id);
    rdma_destroy_ep(listener);
}

static void ping(struct rdma_addrinfo *address) {
    struct ibv_qp_init_attr init = attributes();
    struct rdma_cm_id *id;
    char message[BYTES], answer[BYTES];
    check(rdma_create_ep(&id, address, NULL, &init) == 0, "rdma_create_ep");
    struct ibv_mr *mr = rdma_reg_msgs(id, message, BYTES), *answer_mr = rdma_reg_msgs(id, answer, BYTES);
    check(mr && answer_mr, "rdma_reg_msgs");
    check(rdma_connect(id, NULL) == 0, "rdma_connect");
    for (int count = 0; count < MESSAGES; count++) {
        check(rdma_post_recv(id, NULL, answer, BYTES, answer_mr) == 0, "rdma_post_recv");
        snprintf(message, BYTES, "message %d", count);
        send_and_wait(id, message, mr);
        receive(id);
        check(strcmp(message, answer) == 0, "another answer");
    }
    printf("%d messages there and back\n", MESSAGES);
    rdma_disconnect(id);
    rdma_dereg_mr(mr);
    rdma_dereg_mr(answer_mr);
    rdma_destroy_ep(id);
}

int main(int argc, char **argv) {
    const char *host = argc > 1 ? argv[1] : NULL, *port = argc > 2 ? argv[2] : "7471";
    struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = host ? 0 : RAI_PASSIVE}, *address;
    if (host && !strcmp(host, "-"))
        host = NULL, hints.ai_flags = RAI_PASSIVE;
    check(rdma_getaddrinfo(host, port, &hints, &address) == 0, "rdma_getaddrinfo");
    if (host)
        ping(address);
    else
        serve(address);
    rdma_freeaddrinfo(address);
    return 0;
}
