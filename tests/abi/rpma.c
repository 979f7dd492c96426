/* Memory of another process by librpma: `rpma serve ADDRESS PORT` lends a page and waits, `rpma go ADDRESS PORT` writes to it,
 * flushes, writes a word at once, reads all back and compares. */
#include <unistd.h>

#include <librpma.h>

#include "check.h"

enum { LEN = 1 << 20, WORD = 64 };

static struct rpma_peer *peer_at(const char *address, enum rpma_util_ibv_context_type type) {
    struct ibv_context *context;
    struct rpma_peer *peer;
    CHECK(rpma_utils_get_ibv_context(address, type, &context) == 0);
    CHECK(rpma_peer_new(context, &peer) == 0);
    return peer;
}

static void expect(struct rpma_conn *conn, enum rpma_conn_event wanted) {
    enum rpma_conn_event event;
    CHECK(rpma_conn_next_event(conn, &event) == 0);
    CHECK(event == wanted);
}

static void complete(struct rpma_conn *conn, const void *what, enum ibv_wc_opcode opcode) {
    struct rpma_cq *cq;
    struct ibv_wc wc;
    CHECK(rpma_conn_get_cq(conn, &cq) == 0);
    CHECK(rpma_cq_wait(cq) == 0);
    CHECK(rpma_cq_get_wc(cq, 1, &wc, NULL) == 0);
    CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == opcode);
    CHECK(wc.wr_id == (uintptr_t)what);
}

static void serve(const char *address, const char *port, void *memory) {
    struct rpma_peer *peer = peer_at(address, RPMA_UTIL_IBV_CONTEXT_LOCAL);
    struct rpma_ep *ep;
    struct rpma_mr_local *mr;
    struct rpma_conn_req *request;
    struct rpma_conn *conn;
    char descriptor[255];
    size_t len;
    int usage = RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY;
    CHECK(rpma_mr_reg(peer, memory, LEN, usage, &mr) == 0);
    CHECK(rpma_mr_get_descriptor_size(mr, &len) == 0 && len <= sizeof descriptor);
    CHECK(rpma_mr_get_descriptor(mr, descriptor) == 0);
    struct rpma_conn_private_data data = {.ptr = descriptor, .len = (uint8_t)len};
    CHECK(rpma_ep_listen(peer, address, port, &ep) == 0);
    CHECK(rpma_ep_next_conn_req(ep, NULL, &request) == 0);
    CHECK(rpma_conn_req_connect(&request, &data, &conn) == 0);
    expect(conn, RPMA_CONN_ESTABLISHED);
    expect(conn, RPMA_CONN_CLOSED);
    CHECK(rpma_conn_disconnect(conn) == 0);
    CHECK(rpma_conn_delete(&conn) == 0 && rpma_mr_dereg(&mr) == 0);
    CHECK(rpma_ep_shutdown(&ep) == 0 && rpma_peer_delete(&peer) == 0);
}

static int go(const char *address, const char *port, unsigned char *memory) {
    struct rpma_peer *peer = peer_at(address, RPMA_UTIL_IBV_CONTEXT_REMOTE);
    struct rpma_mr_local *source, *back;
    struct rpma_mr_remote *remote;
    struct rpma_conn_req *request;
    struct rpma_conn *conn;
    struct rpma_conn_private_data data;
    enum rpma_conn_event event;
    unsigned char *copy = memory + LEN;
    size_t len;
    CHECK(rpma_mr_reg(peer, memory, LEN, RPMA_MR_USAGE_WRITE_SRC, &source) == 0);
    CHECK(rpma_mr_reg(peer, copy, LEN, RPMA_MR_USAGE_READ_DST, &back) == 0);
    CHECK(rpma_conn_req_new(peer, address, port, NULL, &request) == 0);
    CHECK(rpma_conn_req_connect(&request, NULL, &conn) == 0);
    CHECK(rpma_conn_next_event(conn, &event) == 0);
    if (event != RPMA_CONN_ESTABLISHED)
        return 3;
    CHECK(rpma_conn_get_private_data(conn, &data) == 0);
    CHECK(rpma_mr_remote_from_descriptor(data.ptr, data.len, &remote) == 0);
    CHECK(rpma_mr_remote_get_size(remote, &len) == 0 && len == LEN);
    for (size_t at = 0; at < LEN; at++)
        memory[at] = (unsigned char)(at * 7 + 1);
    CHECK(rpma_write(conn, remote, 0, source, 0, LEN, RPMA_F_COMPLETION_ON_ERROR, NULL) == 0);
    int flushed = rpma_flush(conn, remote, 0, LEN, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS, copy);
    CHECK(flushed == 0);
    complete(conn, copy, IBV_WC_RDMA_READ);
    memcpy(memory + WORD, "one word", 8);
    const char word[8] = {'o', 'n', 'e', ' ', 'w', 'o', 'r', 'd'};
    CHECK(rpma_atomic_write(conn, remote, WORD, word, RPMA_F_COMPLETION_ALWAYS, memory) == 0);
    complete(conn, memory, IBV_WC_RDMA_WRITE);
    CHECK(rpma_read(conn, back, 0, remote, 0, LEN, RPMA_F_COMPLETION_ALWAYS, back) == 0);
    complete(conn, back, IBV_WC_RDMA_READ);
    CHECK(!memcmp(memory, copy, LEN));
    CHECK(rpma_conn_disconnect(conn) == 0);
    expect(conn, RPMA_CONN_CLOSED);
    CHECK(rpma_mr_remote_delete(&remote) == 0 && rpma_conn_delete(&conn) == 0);
    CHECK(rpma_mr_dereg(&source) == 0 && rpma_mr_dereg(&back) == 0 && rpma_peer_delete(&peer) == 0);
    puts("bytes compared");
    return 0;
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    void *memory = aligned_alloc(4096, 2 * LEN);
    CHECK(memory);
    memset(memory, 0, 2 * LEN);
    if (!strcmp(argv[1], "go"))
        return go(argv[2], argv[3], memory);
    serve(argv[2], argv[3], memory);
    return 0;
}
