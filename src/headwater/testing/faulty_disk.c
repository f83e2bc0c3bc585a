/* A disk that fails, or a machine that dies, at the Nth act on files under one folder.
 *
 * Preloaded into a process, it stands between the program (SQLite included) and the kernel. faulty_arm says which act
 * is to go wrong: counting begins there. Acts: write, pwrite, fsync, fdatasync, ftruncate, rename, link, unlink, and
 * open with O_CREAT. Reads never fail. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static char folder[PATH_MAX];
static long wanted = 0, seen = 0;
static int sticky = 0, error = 0; /* error 0: die */
static int armed = 0;

void faulty_arm(const char *under, long nth, int stays, int how) {
    strncpy(folder, under, sizeof folder - 1);
    wanted = nth; seen = 0; sticky = stays; error = how; armed = 1;
}
long faulty_disarm(void) { armed = 0; return seen; }

static int is_under(const char *path) { return strncmp(path, folder, strlen(folder)) == 0; }

static int fd_is_under(int fd) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size <= 0) return 0;
    path[size] = 0;
    return is_under(path);
}

static int goes_wrong(void) {
    seen++;
    if (wanted == 0 || !(seen == wanted || (sticky && seen > wanted))) return 0;
    if (error == 0) kill(getpid(), SIGKILL);
    errno = error;
    return 1;
}

#define REAL(name) static __typeof__(name) *real = NULL; if (!real) real = dlsym(RTLD_NEXT, #name)

ssize_t write(int fd, const void *data, size_t size) {
    REAL(write);
    if (armed && fd_is_under(fd) && goes_wrong()) return -1;
    return real(fd, data, size);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    REAL(pwrite);
    if (armed && fd_is_under(fd) && goes_wrong()) return -1;
    return real(fd, data, size, at);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    REAL(pwrite64);
    if (armed && fd_is_under(fd) && goes_wrong()) return -1;
    return real(fd, data, size, at);
}
int fsync(int fd) {
    REAL(fsync);
    if (armed && fd_is_under(fd) && goes_wrong()) return -1;
    return real(fd);
}
int fdatasync(int fd) {
    REAL(fdatasync);
    if (armed && fd_is_under(fd) && goes_wrong()) return -1;
    return real(fd);
}
int ftruncate(int fd, off_t size) {
    REAL(ftruncate);
    if (armed && fd_is_under(fd) && goes_wrong()) return -1;
    return real(fd, size);
}
int ftruncate64(int fd, off64_t size) {
    REAL(ftruncate64);
    if (armed && fd_is_under(fd) && goes_wrong()) return -1;
    return real(fd, size);
}
int rename(const char *from, const char *to) {
    REAL(rename);
    if (armed && is_under(to) && goes_wrong()) return -1;
    return real(from, to);
}
int link(const char *from, const char *to) {
    REAL(link);
    if (armed && is_under(to) && goes_wrong()) return -1;
    return real(from, to);
}
int unlink(const char *path) {
    REAL(unlink);
    if (armed && is_under(path) && goes_wrong()) return -1;
    return real(path);
}

#define OPEN(name)                                                                     \
    int name(const char *path, int flags, ...) {                                       \
        REAL(name);                                                                    \
        mode_t mode = 0;                                                               \
        if (flags & (O_CREAT | O_TMPFILE)) {                                           \
            va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); \
        }                                                                              \
        if (armed && (flags & O_CREAT) && is_under(path) && access(path, F_OK) != 0 && goes_wrong()) return -1; \
        return real(path, flags, mode);                                                \
    }
OPEN(open)
OPEN(open64)
