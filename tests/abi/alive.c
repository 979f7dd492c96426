/* A peer that goes while this side only waits: `alive serve ADDRESS PORT` takes one connection and sleeps; `alive wait
 * ADDRESS PORT` connects with SO_KEEPALIVE, and says how its wait ended. `serve-alive` and `sleep` are the same with the
 * sides changed; the listener has the option, and its connections have it from there. `wait-plain` and `serve-plain` are
 * without the option; `wait-late` and `serve-late`, too: they stop once they are connected, and then tell the peer once more what
 * it may send. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <rdma/rsocket.h>

#include "check.h"

static void keep_alive(int fd) {
    int one = 1, idle = 0;
    socklen_t len = sizeof idle;
    CHECK(rsetsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle) == -1 && errno == EINVAL);
    CHECK(rsetsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one) == 0);
    CHECK(rsetsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &one, sizeof one) == 0);
    CHECK(rgetsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, &len) == 0 && idle == 1);
}

static void wait_for_end(int fd, int is_late) {
    char byte;
    puts("up");
    fflush(stdout);
    if (is_late) {
        struct pollfd one = {.fd = fd, .events = POLLIN};
        raise(SIGSTOP);
        CHECK(rpoll(&one, 1, 0) == 0);
        puts("late");
        fflush(stdout);
    }
    ssize_t got = rrecv(fd, &byte, 1, 0);
    printf("%zd %s\n", got, got < 0 ? strerror(errno) : "");
    /* The retries took seconds, and all of the library's threads slept meanwhile. */
    struct rusage used;
    CHECK(getrusage(RUSAGE_SELF, &used) == 0);
    CHECK(used.ru_utime.tv_sec + used.ru_stime.tv_sec == 0);
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[3]))};
    CHECK(inet_aton(argv[2], &addr.sin_addr));
    int fd = rsocket(AF_INET, SOCK_STREAM, 0), is_server = !strncmp(argv[1], "serve", 5);
    CHECK(fd >= 0);
    if (is_server) {
        if (strstr(argv[1], "alive"))
            keep_alive(fd);
        CHECK(rbind(fd, (struct sockaddr *)&addr, sizeof addr) == 0 && rlisten(fd, 1) == 0);
        puts("listening");
        fflush(stdout);
        fd = raccept(fd, NULL, NULL);
        CHECK(fd >= 0);
    } else {
        CHECK(rconnect(fd, (struct sockaddr *)&addr, sizeof addr) == 0);
        if (!strcmp(argv[1], "wait"))
            keep_alive(fd);
    }
    if (!strncmp(argv[1], "wait", 4) || strchr(argv[1], '-')) {
        wait_for_end(fd, !!strstr(argv[1], "late"));
        return 0;
    }
    puts("asleep");
    fflush(stdout);
    pause();
    return 0;
}
