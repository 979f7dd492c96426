/* epoll over rsockets: `repoll ADDRESS PORT level|edge`. A server that waits for its listener, its connections and a pipe by
 * repoll_wait, four results at a time, sends back what clients send; each client is a thread that compares. The functions
 * are newer than the distribution's header. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rsocket.h>

#include "check.h"

enum { CLIENTS = 6, ROUNDS = 40, CHUNK = 100000, ROOM = 65536, RESULTS = 4 };

static int (*create)(int);
static int (*control)(int, int, int, struct epoll_event *);
static int (*await)(int, struct epoll_event *, int, int);
static struct sockaddr_in where;
static int is_edge;

struct connection {
    int fd;
    uint32_t events;
    size_t start, end;
    int has_ended;
    char bytes[ROOM];
};

static void fails(int result, int error) {
    CHECK(result == -1);
    CHECK(errno == error);
}

static void *client(void *argument) {
    uint32_t state = 1 + (uint32_t)(uintptr_t)argument;
    static __thread unsigned char sent[CHUNK], got[CHUNK];
    int fd = rsocket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    CHECK(rconnect(fd, (struct sockaddr *)&where, sizeof where) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        state = state * 1664525 + 1013904223;
        size_t len = 1 + state % CHUNK, have = 0;
        for (size_t at = 0; at < len; at++)
            sent[at] = (unsigned char)(state + at * 7);
        CHECK(rsend(fd, sent, len, 0) == (ssize_t)len);
        while (have < len) {
            ssize_t now = rrecv(fd, got + have, len - have, 0);
            CHECK(now > 0);
            have += now;
        }
        CHECK(!memcmp(sent, got, len));
    }
    CHECK(rshutdown(fd, SHUT_WR) == 0);
    CHECK(rrecv(fd, got, 1, 0) == 0);
    CHECK(rclose(fd) == 0);
    return NULL;
}

/* Moves what can be moved; 0 once all is sent back after the end. */
static int echo(int epoll, struct connection *peer) {
    int moved;
    do {
        moved = 0;
        if (!peer->has_ended && peer->end < ROOM) {
            ssize_t got = rrecv(peer->fd, peer->bytes + peer->end, ROOM - peer->end, 0);
            CHECK(got >= 0 || errno == EAGAIN);
            peer->has_ended = got == 0;
            if (got > 0)
                peer->end += got, moved = 1;
        }
        if (peer->start < peer->end) {
            ssize_t sent = rsend(peer->fd, peer->bytes + peer->start, peer->end - peer->start, 0);
            CHECK(sent > 0 || errno == EAGAIN);
            if (sent > 0)
                peer->start += sent, moved = 1;
        }
        if (peer->start == peer->end)
            peer->start = peer->end = 0;
        else if (peer->end == ROOM && peer->start > 0) {
            memmove(peer->bytes, peer->bytes + peer->start, ROOM - peer->start);
            peer->end -= peer->start;
            peer->start = 0;
        }
    } while (moved);
    if (peer->has_ended && peer->end == 0)
        return 0;
    /* By edges, it was asked for everything from the beginning. */
    uint32_t wanted = (peer->end < ROOM && !peer->has_ended ? EPOLLIN : 0) | (peer->end ? EPOLLOUT : 0);
    if (!is_edge && wanted != peer->events) {
        struct epoll_event event = {.events = wanted, .data.ptr = peer};
        CHECK(control(epoll, EPOLL_CTL_MOD, peer->fd, &event) == 0);
        peer->events = wanted;
    }
    return 1;
}

static void welcome(int epoll, int listener) {
    int fd;
    while ((fd = raccept(listener, NULL, NULL)) >= 0) {
        CHECK(rfcntl(fd, F_SETFL, O_NONBLOCK) == 0);
        CHECK(rfcntl(fd, F_SETFD, FD_CLOEXEC) == 0 && rfcntl(fd, F_GETFD) == FD_CLOEXEC);
        struct connection *peer = calloc(1, sizeof *peer);
        CHECK(peer);
        peer->fd = fd;
        peer->events = EPOLLIN;
        uint32_t events = is_edge ? EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET : EPOLLIN;
        struct epoll_event event = {.events = events, .data.ptr = peer};
        CHECK(control(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
        fails(control(epoll, EPOLL_CTL_ADD, fd, &event), EEXIST);
    }
    CHECK(errno == EAGAIN);
}

/* What epoll(7) says of wrong arguments and of EPOLLONESHOT. */
static void rules(int epoll, int listener) {
    struct epoll_event event = {.events = EPOLLIN}, found[2];
    int one[2];
    CHECK(pipe(one) == 0);
    fails(create(-1), EINVAL);
    fails(control(listener, EPOLL_CTL_ADD, one[0], &event), EINVAL);
    fails(control(epoll, EPOLL_CTL_ADD, epoll, &event), EINVAL);
    fails(control(epoll, EPOLL_CTL_ADD, 1 << 20, &event), EBADF);
    fails(control(epoll, EPOLL_CTL_MOD, listener, &event), ENOENT);
    fails(control(epoll, EPOLL_CTL_DEL, listener, NULL), ENOENT);
    fails(control(epoll, EPOLL_CTL_ADD, listener, NULL), EFAULT);
    fails(control(epoll, 77, listener, &event), EINVAL);
    fails(await(epoll, found, 0, 0), EINVAL);
    fails(await(listener, found, 2, 0), EINVAL);
    CHECK(await(epoll, found, 2, 0) == 0);
    CHECK(await(epoll, found, 2, 30) == 0);
    event = (struct epoll_event){.events = EPOLLIN | EPOLLONESHOT, .data.u64 = 0x1122334455667788};
    CHECK(control(epoll, EPOLL_CTL_ADD, one[0], &event) == 0);
    CHECK(write(one[1], "x", 1) == 1);
    CHECK(await(epoll, found, 2, 5000) == 1);
    CHECK(found[0].data.u64 == event.data.u64 && found[0].events == EPOLLIN);
    CHECK(await(epoll, found, 2, 30) == 0);
    CHECK(control(epoll, EPOLL_CTL_DEL, one[0], NULL) == 0);
    close(one[0]), close(one[1]);
    /* Of a socket too: one that is not connected, and has room for ever, is told once. */
    int fd = rsocket(AF_INET, SOCK_STREAM, 0), again;
    CHECK(fd >= 0);
    CHECK(rconnect(fd, (struct sockaddr *)&where, sizeof where) == -1 && errno == ECONNREFUSED);
    event.events = EPOLLOUT | EPOLLONESHOT;
    CHECK(control(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
    CHECK(await(epoll, found, 2, 5000) == 1);
    CHECK(found[0].data.u64 == event.data.u64 && found[0].events & EPOLLERR);
    CHECK(await(epoll, found, 2, 0) == 0);
    /* One that is closed leaves by itself, also for the next with its number. */
    CHECK(rclose(fd) == 0);
    again = rsocket(AF_INET, SOCK_STREAM, 0);
    CHECK(control(epoll, EPOLL_CTL_ADD, again, &event) == 0);
    CHECK(rclose(again) == 0);
}

/* Another thread adds a socket that is ready while this one waits. */
static void *late(void *argument) {
    int *pair = argument;
    usleep(100000);
    struct epoll_event event = {.events = EPOLLOUT, .data.u64 = 5};
    CHECK(control(pair[0], EPOLL_CTL_ADD, pair[1], &event) == 0);
    return NULL;
}

static void additions(void) {
    int epoll = create(EPOLL_CLOEXEC), fd = rsocket(AF_INET, SOCK_DGRAM, 0);
    CHECK(epoll >= 0 && fd >= 0);
    int pair[] = {epoll, fd};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, late, pair) == 0);
    struct epoll_event found;
    CHECK(await(epoll, &found, 1, 20000) == 1);
    CHECK(found.data.u64 == 5 && found.events == EPOLLOUT);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(rclose(fd) == 0);
    CHECK(rclose(epoll) == 0);
    CHECK(rclose(epoll) == -1 && errno == EBADF);
}

static int wakes;

static void *serve(void *argument) {
    int *fds = argument, epoll = fds[0], listener = fds[1], stop = fds[2];
    for (;;) {
        struct epoll_event events[RESULTS];
        int count = await(epoll, events, RESULTS, -1);
        CHECK(count > 0 && count <= RESULTS);
        wakes++;
        for (int at = 0; at < count; at++) {
            if (events[at].data.ptr == &where) {
                welcome(epoll, listener);
            } else if (!events[at].data.ptr) {
                char byte;
                CHECK(read(stop, &byte, 1) == 1);
                return NULL;
            } else if (!echo(epoll, events[at].data.ptr)) {
                struct connection *peer = events[at].data.ptr;
                CHECK(control(epoll, EPOLL_CTL_DEL, peer->fd, NULL) == 0);
                CHECK(rclose(peer->fd) == 0);
                free(peer);
            }
        }
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    is_edge = !strcmp(argv[3], "edge");
    create = (int (*)(int))dlsym(RTLD_DEFAULT, "repoll_create");
    control = (int (*)(int, int, int, struct epoll_event *))dlsym(RTLD_DEFAULT, "repoll_ctl");
    await = (int (*)(int, struct epoll_event *, int, int))dlsym(RTLD_DEFAULT, "repoll_wait");
    CHECK(create && control && await);
    where = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(atoi(argv[2]))};
    CHECK(inet_aton(argv[1], &where.sin_addr));
    int epoll = create(EPOLL_CLOEXEC), listener = rsocket(AF_INET, SOCK_STREAM, 0), stop[2];
    CHECK(epoll >= 0 && listener >= 0 && pipe(stop) == 0);
    rules(epoll, listener);
    additions();
    CHECK(rbind(listener, (struct sockaddr *)&where, sizeof where) == 0);
    CHECK(rlisten(listener, CLIENTS) == 0);
    CHECK(rfcntl(listener, F_SETFL, O_NONBLOCK) == 0);
    struct epoll_event event = {.events = EPOLLIN | (is_edge ? EPOLLET : 0), .data.ptr = &where};
    CHECK(control(epoll, EPOLL_CTL_ADD, listener, &event) == 0);
    event = (struct epoll_event){.events = EPOLLIN};
    CHECK(control(epoll, EPOLL_CTL_ADD, stop[0], &event) == 0);

    int fds[] = {epoll, listener, stop[0]};
    pthread_t server, clients[CLIENTS];
    CHECK(pthread_create(&server, NULL, serve, fds) == 0);
    for (uintptr_t at = 0; at < CLIENTS; at++)
        CHECK(pthread_create(&clients[at], NULL, client, (void *)at) == 0);
    for (int at = 0; at < CLIENTS; at++)
        CHECK(pthread_join(clients[at], NULL) == 0);
    /* With nothing to do it sleeps. */
    int before = wakes;
    usleep(200000);
    CHECK(wakes - before < 20);
    CHECK(write(stop[1], "x", 1) == 1);
    CHECK(pthread_join(server, NULL) == 0);
    CHECK(rclose(listener) == 0 && rclose(epoll) == 0);
    puts("all came back");
    return 0;
}
