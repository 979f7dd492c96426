/* What a program can do in a simulation, and what it cannot: the first argument says what is tried. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define CHECK(x) do { if (!(x)) { printf("line %d: %s: %s\n", __LINE__, #x, strerror(errno)); exit(9); } } while (0)

static double now(void)
{
	struct timespec time;
	CHECK(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void *thread(void *argument)
{
	return argument;
}

/* The counter of the processor counts nanoseconds there. */
static void counter(void)
{
#ifdef __x86_64__
	unsigned long long before = __builtin_ia32_rdtsc();
	unsigned processor = 1;
	CHECK(sleep(1) == 0);
	unsigned long long passed = __builtin_ia32_rdtscp(&processor) - before;
	CHECK(passed >= 1000000000 && passed < 1100000000 && processor == 0);
#endif
}

/* An hour passes at once. */
static void clocks(void)
{
	double before = now();
	struct timeval began, ended;
	gettimeofday(&began, NULL);
	CHECK(sleep(3600) == 0 && usleep(1000) == 0);
	CHECK(poll(NULL, 0, 1000) == 0);
	struct timeval second = { .tv_sec = 1 };
	CHECK(select(0, NULL, NULL, NULL, &second) == 0);
	gettimeofday(&ended, NULL);
	CHECK(now() - before >= 3602.001 && now() - before < 3602.1);
	CHECK(ended.tv_sec - began.tv_sec >= 3602 && time(NULL) >= ended.tv_sec);
	/* One that waits by looking. */
	before = now();
	while (now() - before < 0.001)
		;
	printf("it is %ld, and process %d\n", (long)time(NULL), (int)getpid());
}

static struct sockaddr_in address(const char *host, int port)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons((unsigned short)port) };
	in.sin_addr.s_addr = host ? inet_addr(host) : INADDR_ANY;
	return in;
}

static void server(void)
{
	struct sockaddr_in in = address(NULL, 7000);
	socklen_t len = sizeof in;
	char text[16];
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&in, len) == 0 && listen(fd, 1) == 0);
	struct pollfd polled = { .fd = fd, .events = POLLIN };
	CHECK(poll(&polled, 1, 0) == 0);
	CHECK(poll(&polled, 1, 1000) == 1 && polled.revents == POLLIN);
	int peer = accept(fd, (struct sockaddr *)&in, &len);
	CHECK(peer >= 0);
	printf("from %s\n", inet_ntoa(in.sin_addr));
	CHECK(recv(peer, text, 4, MSG_WAITALL) == 4 && memcmp(text, "ping", 4) == 0);
	CHECK(write(peer, "pong", 4) == 4);
	CHECK(read(peer, text, sizeof text) == 0);
	CHECK(close(peer) == 0 && close(fd) == 0 && close(fd) == -1 && errno == EBADF);
}

static void client(const char *host)
{
	struct sockaddr_in in = address(host, 7001);
	char text[16];
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(fd, (struct sockaddr *)&in, sizeof in) == -1 && errno == ECONNREFUSED);
	in.sin_port = htons(7000);
	double before = now();
	CHECK(connect(fd, (struct sockaddr *)&in, sizeof in) == 0);
	CHECK(now() - before >= 19.9e-6);
	CHECK(write(fd, "pi", 2) == 2 && sleep(1) == 0 && write(fd, "ng", 2) == 2);
	fd_set set;
	FD_ZERO(&set);
	FD_SET(fd, &set);
	CHECK(select(fd + 1, &set, NULL, NULL, NULL) == 1 && FD_ISSET(fd, &set));
	CHECK(read(fd, text, sizeof text) == 4 && memcmp(text, "pong", 4) == 0);
	CHECK(recv(fd, text, sizeof text, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	CHECK(close(fd) == 0);
}

/* Two peers, one of which writes later; and a message of several parts each way. */
static void epoll_server(void)
{
	struct sockaddr_in in = address(NULL, 7000);
	int fd = socket(AF_INET, SOCK_STREAM, 0), set = epoll_create1(EPOLL_CLOEXEC);
	CHECK(set >= 0 && bind(fd, (struct sockaddr *)&in, sizeof in) == 0 && listen(fd, 1) == 0);
	struct epoll_event told[4], event = { .events = EPOLLIN, .data.u64 = 1 };
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == -1 && errno == EEXIST);
	double before = now();
	CHECK(epoll_wait(set, told, 4, 1) == 0 && now() - before >= 0.000999);
	CHECK(epoll_wait(set, told, 4, -1) == 1 && told[0].data.u64 == 1 && told[0].events == EPOLLIN);
	int peer = accept(fd, NULL, NULL);
	CHECK(peer >= 0);
	/* A real descriptor in the same set. */
	int ends[2];
	CHECK(pipe(ends) == 0);
	event.data.u64 = 3;
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event) == 0);
	event.data.u64 = 2;
	event.events = EPOLLIN | EPOLLONESHOT;
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, peer, &event) == 0);
	CHECK(epoll_wait(set, told, 4, -1) == 1 && told[0].data.u64 == 2 && told[0].events == EPOLLIN);
	CHECK(epoll_wait(set, told, 4, 0) == 0);
	event.events = EPOLLIN | EPOLLOUT;
	CHECK(epoll_ctl(set, EPOLL_CTL_MOD, peer, &event) == 0);
	CHECK(epoll_wait(set, told, 4, 0) == 1 && told[0].events == (EPOLLIN | EPOLLOUT));
	CHECK(write(ends[1], "x", 1) == 1);
	CHECK(epoll_wait(set, told, 4, 0) == 2 && told[0].data.u64 + told[1].data.u64 == 5);
	char first[3], second[16];
	struct iovec parts[] = { { first, sizeof first }, { second, sizeof second } };
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
	CHECK(recvmsg(peer, &message, 0) == 8 && !memcmp(first, "mes", 3) && !memcmp(second, "sage!", 5));
	CHECK(recvmsg(peer, &message, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	parts[0] = (struct iovec){ "ans", 3 };
	parts[1] = (struct iovec){ "wer", 3 };
	CHECK(sendmsg(peer, &message, MSG_NOSIGNAL) == 6);
	event.events = EPOLLIN | EPOLLET;
	CHECK(epoll_ctl(set, EPOLL_CTL_MOD, peer, &event) == -1 && errno == EINVAL);
	event.events = EPOLLIN | EPOLLRDHUP;
	CHECK(epoll_ctl(set, EPOLL_CTL_MOD, peer, &event) == 0 && epoll_ctl(set, EPOLL_CTL_DEL, ends[0], NULL) == 0);
	CHECK(epoll_wait(set, told, 4, -1) == 1 && told[0].events == (EPOLLIN | EPOLLRDHUP));
	CHECK(close(peer) == 0 && epoll_ctl(set, EPOLL_CTL_DEL, peer, NULL) == -1);
	CHECK(epoll_wait(set, told, 4, 10) == 0);
	CHECK(close(set) == 0 && epoll_wait(set, told, 4, 0) == -1);
	printf("all was told\n");
}

static void epoll_client(const char *host)
{
	struct sockaddr_in in = address(host, 7000);
	char text[3], rest[3];
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(usleep(5000) == 0 && connect(fd, (struct sockaddr *)&in, sizeof in) == 0);
	struct iovec parts[] = { { "mess", 4 }, { "", 0 }, { "age!", 4 } };
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 3 };
	CHECK(usleep(1000) == 0 && sendmsg(fd, &message, 0) == 8);
	parts[0] = (struct iovec){ text, 3 };
	parts[1] = (struct iovec){ rest, 3 };
	message.msg_iovlen = 2;
	CHECK(recvmsg(fd, &message, MSG_WAITALL) == 6 && !memcmp(text, "ans", 3) && !memcmp(rest, "wer", 3));
	CHECK(usleep(1000) == 0 && close(fd) == 0);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	pthread_t id;

	if (!strcmp(what, "clocks")) {
		clocks();
		counter();
	} else if (!strcmp(what, "talk") && argc == 2)
		server();
	else if (!strcmp(what, "talk"))
		client(argv[2]);
	else if (!strcmp(what, "epoll") && argc == 2)
		epoll_server();
	else if (!strcmp(what, "epoll"))
		epoll_client(argv[2]);
	else if (!strcmp(what, "status"))
		return 3;
	else if (!strcmp(what, "crash"))
		raise(SIGSEGV);
	else if (!strcmp(what, "spin"))
		for (volatile int i = 0;; i++)
			;
	else if (!strcmp(what, "wait"))
		poll(NULL, 0, -1);
	else if (!strcmp(what, "thread"))
		return pthread_create(&id, NULL, thread, NULL) == EAGAIN ? 4 : 0;
	else if (!strcmp(what, "fork"))
		return fork() == -1 && errno == ENOSYS ? 5 : 0;
	else if (!strcmp(what, "exec")) {
		char *arguments[] = { "sleep", "100", NULL };
		return execv("/bin/sleep", arguments) == -1 && errno == ENOSYS ? 6 : 0;
	}
	return 0;
}
