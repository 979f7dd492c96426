/* An ordinary program with stream sockets: `sockets serve PORT BYTES` takes one connection, reads so many bytes, and
 * answers with their checksum; `sockets send ADDRESS PORT BYTES` sends them and compares. Half of the calls wait, half
 * poll. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "check.h"

enum { CHUNK = 100000 };
static unsigned char buffer[CHUNK];

static uint64_t mix(uint64_t sum, const unsigned char *bytes, size_t len) {
    for (size_t i = 0; i < len; i++)
        sum = (sum ^ bytes[i]) * 0x100000001b3;
    return sum;
}

static void wait_for(int fd, short events) {
    struct pollfd poll_fd = {.fd = fd, .events = events};
    int found;
    do {
        found = poll(&poll_fd, 1, 20000);
    } while (found < 0 && errno == EINTR);
    CHECK(found == 1);
    CHECK(poll_fd.revents & events);
}

static int serve(int port, size_t total) {
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(listener >= 0);
    CHECK(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0);
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(port)};
    CHECK(bind(listener, (struct sockaddr *)&addr, sizeof addr) == 0);
    CHECK(listen(listener, 5) == 0);
    wait_for(listener, POLLIN);
    struct sockaddr_in peer;
    socklen_t len = sizeof peer;
    int fd = accept(listener, (struct sockaddr *)&peer, &len);
    CHECK(fd >= 0);
    CHECK(len == sizeof peer && peer.sin_family == AF_INET);
    uint64_t sum = 0;
    size_t have = 0;
    for (int turn = 0; have < total; turn++) {
        size_t most = total - have < CHUNK ? total - have : CHUNK;
        if (turn % 2)
            wait_for(fd, POLLIN);
        ssize_t got = turn % 3 ? read(fd, buffer, most) : recv(fd, buffer, most, 0);
        CHECK(got > 0);
        sum = mix(sum, buffer, got);
        have += got;
    }
    CHECK(send(fd, &sum, sizeof sum, 0) == sizeof sum);
    /* The peer closes after it has read that. */
    CHECK(read(fd, buffer, 1) == 0);
    close(fd);
    close(listener);
    return 0;
}

static int send_all(const char *host, int port, size_t total) {
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(port)};
    CHECK(inet_pton(AF_INET, host, &addr.sin_addr) == 1);
    if (connect(fd, (struct sockaddr *)&addr, sizeof addr))
        return errno == ECONNREFUSED ? 3 : 2;
    CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    for (size_t i = 0; i < CHUNK; i++)
        buffer[i] = (unsigned char)(i * 7 + (i >> 8));
    uint64_t sum = 0, answer;
    size_t sent = 0;
    while (sent < total) {
        size_t most = total - sent < CHUNK ? total - sent : CHUNK;
        struct iovec parts[2] = {{buffer, most / 3}, {buffer + most / 3, most - most / 3}};
        ssize_t done = writev(fd, parts, 2);
        if (done < 0) {
            CHECK(errno == EAGAIN);
            wait_for(fd, POLLOUT);
            continue;
        }
        sum = mix(sum, buffer, done);
        sent += done;
    }
    CHECK(fcntl(fd, F_SETFL, 0) == 0);
    CHECK(recv(fd, &answer, sizeof answer, MSG_WAITALL) == sizeof answer);
    CHECK(answer == sum);
    CHECK(shutdown(fd, SHUT_RDWR) == 0);
    close(fd);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 4 && !strcmp(argv[1], "serve"))
        return serve(atoi(argv[2]), strtoull(argv[3], NULL, 10));
    if (argc == 5 && !strcmp(argv[1], "send"))
        return send_all(argv[2], atoi(argv[3]), strtoull(argv[4], NULL, 10));
    fprintf(stderr, "usage: sockets serve PORT BYTES | send ADDRESS PORT BYTES\n");
    return 2;
}
