/* The floor: the same chain of three plugins with posix_spawn and pipes, and nothing else. No library can do less.
 *
 * Usage: floor PLUGIN CONFIG, then requests on stdin: "add FIRST COUNT PARALLEL". The answer is a line of JSON with the
 * nanoseconds of the whole request and of each chain. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHAIN 3
#define SIZE 65536

static char *plugin, config[SIZE], *environment[] = {
    "CNI_COMMAND=ADD", "CNI_CONTAINERID=floor", "CNI_NETNS=/run/netns/bench", "CNI_IFNAME=eth0", "CNI_ARGS=",
    "CNI_PATH=/opt/cni/bin", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL};
static long long *taken;
static atomic_int next;
static int count;

static long long now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static size_t drain(int fd, char *into, size_t size) {
    size_t length = 0;
    ssize_t got;
    while ((got = read(fd, into + length, size - 1 - length)) > 0)
        length += (size_t)got;
    into[length] = 0;
    close(fd);
    return length;
}

static void run(const char *input, char *output) {
    int in[2], out[2], err[2], status;
    char errors[4096], *argv[] = {plugin, NULL};
    pid_t pid;
    posix_spawn_file_actions_t actions;
    if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC))
        fail("pipe2");
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    posix_spawn_file_actions_adddup2(&actions, err[1], 2);
    if (posix_spawn(&pid, plugin, &actions, NULL, argv, environment))
        fail("posix_spawn");
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]), close(out[1]), close(err[1]);
    if (write(in[1], input, strlen(input)) < 0)
        fail("write");
    close(in[1]);
    drain(out[0], output, SIZE / 2);
    drain(err[0], errors, sizeof errors);
    if (waitpid(pid, &status, 0) != pid || status)
        fail("waitpid");
}

static void chain(void) {
    char input[SIZE], result[SIZE / 2] = "";
    for (int index = 0; index < CHAIN; index++) {
        if (index)
            snprintf(input, sizeof input, "%.*s,\"prevResult\":%.30000s}", (int)strlen(config) - 1, config, result);
        run(index ? input : config, result);
    }
}

static void *work(void *unused) {
    int index;
    while ((index = atomic_fetch_add(&next, 1)) < count) {
        long long start = now();
        chain();
        taken[index] = now() - start;
    }
    return unused;
}

int main(int argc, char **argv) {
    int first, parallel;
    FILE *file = argc == 3 ? fopen(argv[2], "r") : NULL;
    if (!file)
        fail("usage: floor PLUGIN CONFIG");
    config[fread(config, 1, SIZE / 2, file)] = 0;
    plugin = argv[1];
    signal(SIGPIPE, SIG_IGN);
    while (scanf(" add %d %d %d", &first, &count, &parallel) == 3) {
        pthread_t *threads = calloc((size_t)parallel, sizeof *threads);
        taken = calloc((size_t)count, sizeof *taken);
        atomic_store(&next, 0);
        long long start = now();
        for (int index = 0; index < parallel; index++)
            pthread_create(&threads[index], NULL, work, NULL);
        for (int index = 0; index < parallel; index++)
            pthread_join(threads[index], NULL);
        printf("{\"wall\":%lld,\"each\":[", now() - start);
        for (int index = 0; index < count; index++)
            printf("%s%lld", index ? "," : "", taken[index]);
        printf("]}\n");
        fflush(stdout);
        free(threads), free(taken);
    }
    return 0;
}
