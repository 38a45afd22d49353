/* For LD_PRELOAD: count the calls of libc that a verb makes, and let one of them fail or kill the process.
 *
 * shim_arm(at, error) starts counting from 0. Call number `at` does not happen: it fails with errno `error`, or, where
 * `error` is -1, the process is killed; a write has then written half of its bytes. shim_disarm() ends it and returns the count. What call number `at` was is in
 * shim_name.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_int armed, count;
static int fail_at, fail_with;
char shim_name[32];

void shim_arm(int at, int error) {
    fail_at = at;
    fail_with = error;
    count = 0;
    shim_name[0] = 0;
    armed = 1;
}

int shim_disarm(void) {
    armed = 0;
    return count;
}

static int hit(const char *name) {
    if (!armed || atomic_fetch_add(&count, 1) != fail_at) return 0;
    strncpy(shim_name, name, sizeof shim_name - 1);
    if (fail_with == -1) kill(getpid(), SIGKILL);
    errno = fail_with;
    return 1;
}

#define WRAP(type, name, parameters, arguments)                          \
    type name parameters {                                               \
        static type(*real) parameters;                                   \
        if (!real) real = (type(*) parameters)dlsym(RTLD_NEXT, #name);   \
        return hit(#name) ? -1 : real arguments;                         \
    }

#define WRAP_WRITE(name, parameters, half, whole)                               \
    ssize_t name parameters {                                                   \
        static ssize_t(*real) parameters;                                       \
        if (!real) real = (ssize_t(*) parameters)dlsym(RTLD_NEXT, #name);       \
        if (armed && count == fail_at && fail_with == -1) (void)!real half;     \
        return hit(#name) ? -1 : real whole;                                    \
    }

/* open and fcntl take one more argument or none; to pass on what is not there harms nothing on Linux */
#define WRAP_OPEN(name)                                                               \
    int name(const char *path, int flags, ...) {                                      \
        static int (*real)(const char *, int, ...);                                   \
        va_list more;                                                                 \
        va_start(more, flags);                                                        \
        mode_t mode = va_arg(more, mode_t);                                           \
        va_end(more);                                                                 \
        if (!real) real = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name);   \
        return hit(#name) ? -1 : real(path, flags, mode);                             \
    }
#define WRAP_OPENAT(name)                                                                      \
    int name(int at, const char *path, int flags, ...) {                                       \
        static int (*real)(int, const char *, int, ...);                                       \
        va_list more;                                                                          \
        va_start(more, flags);                                                                 \
        mode_t mode = va_arg(more, mode_t);                                                    \
        va_end(more);                                                                          \
        if (!real) real = (int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, #name);       \
        return hit(#name) ? -1 : real(at, path, flags, mode);                                  \
    }
#define WRAP_FCNTL(name)                                                      \
    int name(int fd, int command, ...) {                                      \
        static int (*real)(int, int, ...);                                    \
        va_list more;                                                         \
        va_start(more, command);                                              \
        void *argument = va_arg(more, void *);                                \
        va_end(more);                                                         \
        if (!real) real = (int (*)(int, int, ...))dlsym(RTLD_NEXT, #name);    \
        return hit(#name) ? -1 : real(fd, command, argument);                 \
    }

WRAP_OPEN(open)
WRAP_OPEN(open64)
WRAP_OPENAT(openat)
WRAP_OPENAT(openat64)
WRAP_FCNTL(fcntl)
WRAP_FCNTL(fcntl64)
WRAP(ssize_t, read, (int fd, void *data, size_t size), (fd, data, size))
WRAP_WRITE(write, (int fd, const void *data, size_t size), (fd, data, size / 2), (fd, data, size))
WRAP_WRITE(pwrite, (int fd, const void *data, size_t size, off_t at), (fd, data, size / 2, at), (fd, data, size, at))
WRAP_WRITE(pwrite64, (int fd, const void *data, size_t size, off64_t at), (fd, data, size / 2, at), (fd, data, size, at))
WRAP(int, fsync, (int fd), (fd))
WRAP(int, link, (const char *from, const char *to), (from, to))
WRAP(int, linkat, (int a, const char *from, int b, const char *to, int flags), (a, from, b, to, flags))
WRAP(int, rename, (const char *from, const char *to), (from, to))
WRAP(int, renameat, (int a, const char *from, int b, const char *to), (a, from, b, to))
WRAP(int, unlink, (const char *path), (path))
WRAP(int, unlinkat, (int at, const char *path, int flags), (at, path, flags))
WRAP(int, mkdir, (const char *path, mode_t mode), (path, mode))
WRAP(int, mkdirat, (int at, const char *path, mode_t mode), (at, path, mode))
WRAP(int, pipe2, (int ends[2], int flags), (ends, flags))
WRAP(int, memfd_create, (const char *name, unsigned flags), (name, flags))
WRAP(int, waitid, (idtype_t type, id_t id, siginfo_t *info, int options), (type, id, info, options))
WRAP(int, poll, (struct pollfd *fds, nfds_t number, int timeout), (fds, number, timeout))

int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                const posix_spawnattr_t *attributes, char *const argv[], char *const env[]) {
    static typeof(posix_spawn) *real;
    if (!real) real = (typeof(posix_spawn) *)dlsym(RTLD_NEXT, "posix_spawn");
    return hit("posix_spawn") ? fail_with : real(pid, path, actions, attributes, argv, env);
}
