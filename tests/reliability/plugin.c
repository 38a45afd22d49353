/* A CNI plugin for tests that call it thousands of times. Its configuration says what it does:
 *
 *   "dir":  where it keeps its state: ips/<n>, one symbolic link for each address, to "<network> <container> <interface>
 *           <type>"; and log, two lines for each call (see below)
 *   "slow": it sleeps up to so many milliseconds, before and after its work
 *   "fail": how many of 100 calls fail, before or after the work is done
 *
 * Where <dir>/calm exists it is neither slow nor failing. A type that starts with "alloc" holds one address for each
 * attachment. GC frees none: what is held without an attachment is for the test to find.
 *
 * log: <S or E> <ns> <verb> <network> <container or -> <interface or -> <type> <token> <pid> <what came of it>
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char input[1 << 20], dir[4096], network[512], owner[2048];
static const char *verb, *container, *ifname, *type;
static unsigned seed;

static const char *env(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : "-";
}

static void text(const char *key, char *into, size_t size) {
    char *at = strstr(input, key);
    size_t n = 0;
    if (at)
        for (at += strlen(key); *at && *at != '"' && n < size - 1; at++) into[n++] = *at;
    into[n] = 0;
}

static int number(const char *key) {
    char *at = strstr(input, key);
    return at ? atoi(at + strlen(key)) : 0;
}

static void note(char mark, const char *what) {
    char path[4200], line[8192], token[64] = "-";
    const char *found = strchr(env("LIBCNI_LOCK"), ':');
    struct timespec now;
    if (found && (found = strchr(found + 1, ':'))) snprintf(token, sizeof token, "%.*s", (int)strcspn(found + 1, ":"), found + 1);
    clock_gettime(CLOCK_MONOTONIC, &now);
    int n = snprintf(line, sizeof line, "%c %lld %s %s %s %s %s %s %d %s\n", mark,
                     now.tv_sec * 1000000000LL + now.tv_nsec, verb, network, container, ifname, type, token, getpid(), what);
    snprintf(path, sizeof path, "%s/log", dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd >= 0 && write(fd, line, n) != n) abort();
    if (fd >= 0) close(fd);
}

static void doze(int most) {
    if (most > 0) usleep(rand_r(&seed) % (most * 1000));
}

/* Return the number of addresses that the owner holds; free them if asked to. */
static int held(int release) {
    char path[4200], target[2048];
    int count = 0;
    snprintf(path, sizeof path, "%s/ips", dir);
    DIR *ips = opendir(path);
    struct dirent *entry;
    while (ips && (entry = readdir(ips))) {
        ssize_t n = readlinkat(dirfd(ips), entry->d_name, target, sizeof target - 1);
        if (n < 0) continue;
        target[n] = 0;
        if (strcmp(target, owner)) continue;
        count++;
        if (release) unlinkat(dirfd(ips), entry->d_name, 0);
    }
    if (ips) closedir(ips);
    return count;
}

static int allocate(void) {
    char path[4200];
    for (int n = 2; n < 65000; n++) {
        snprintf(path, sizeof path, "%s/ips/%d", dir, n);
        if (!symlink(owner, path)) return n;
        if (errno != EEXIST) return -1;
    }
    return -1;
}

static int end(int code, const char *what) {
    note('E', what);
    if (code) printf("{\"cniVersion\":\"1.0.0\",\"code\":%d,\"msg\":\"%s\"}", code, what);
    return code ? 1 : 0;
}

int main(int argc, char **argv) {
    char path[4200];
    size_t size = 0;
    ssize_t n;
    struct timespec now;
    while ((n = read(0, input + size, sizeof input - 1 - size)) > 0) size += n;
    if (!size) return 1; /* started ahead, and nobody needed it */
    text("\"dir\":\"", dir, sizeof dir);
    text("\"name\":\"", network, sizeof network);
    verb = env("CNI_COMMAND"), container = env("CNI_CONTAINERID"), ifname = env("CNI_IFNAME");
    type = argc && strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : "-";
    snprintf(owner, sizeof owner, "%s %s %s %s", network, container, ifname, type);
    snprintf(path, sizeof path, "%s/calm", dir);
    int calm = !access(path, F_OK), allocates = !strncmp(type, "alloc", 5);
    int slow = calm ? 0 : number("\"slow\":"), fail = calm ? 0 : number("\"fail\":");
    clock_gettime(CLOCK_MONOTONIC, &now);
    seed = now.tv_nsec ^ getpid() << 8;
    fail = (int)(rand_r(&seed) % 100) < fail ? 1 + rand_r(&seed) % 2 : 0;
    note('S', "-");
    doze(slow);
    if (fail == 1) return end(100, "failed-early");
    if (!strcmp(verb, "ADD")) {
        if (allocates && held(0)) return end(101, "already-there");
        int address = allocates ? allocate() : 1;
        if (address < 0) return end(102, "no-address");
        doze(slow);
        if (fail) return end(103, "failed-late");
        printf("{\"cniVersion\":\"1.0.0\",\"ips\":[{\"address\":\"10.%d.%d.1/8\"}]}", address >> 8, address & 255);
        return end(0, "ok");
    }
    if (!strcmp(verb, "DEL")) held(1);
    if (!strcmp(verb, "CHECK") && allocates && held(0) != 1) return end(104, "not-there");
    doze(slow);
    return fail ? end(103, "failed-late") : end(0, "ok");
}
