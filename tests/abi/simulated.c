/* What a program can do in a simulation, and what it cannot: the first argument says what is tried. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
