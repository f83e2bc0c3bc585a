/* A disk that remembers: every act on files under one folder is written, in order, into a journal.
 *
 * Preloaded into a process, it stands between the program (SQLite included) and the kernel; what the kernel has
 * accepted is recorded, what failed is not. Several processes may share a journal: each act is one append to it.
 *
 *   record   kind (1), path size, other path's size (uint32 each), offset or new size, content's size (uint64 each),
 *            all little-endian; then path, other path, content
 *   kinds    C file created   M folder made   W written   T truncated   S synced (file or folder)
 *            R renamed        L linked        U unlinked  D folder removed   A mark: the program's own words
 *
 * Not seen: memory-mapped writes (SQLite's -shm, which is no part of what must survive), the *at() calls with a folder
 * of their own, copy_file_range. Who uses it compares the end of the journal with the folder, and so knows. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char folder[PATH_MAX];
static int journal = -1;
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER; /* an act and its record: nobody in between */

#define REAL(name) static __typeof__(name) *real = NULL; if (!real) real = dlsym(RTLD_NEXT, #name)

static int is_under(const char *path) {
    size_t size = strlen(folder);
    return strncmp(path, folder, size) == 0 && (path[size] == '/' || path[size] == 0);
}

/* The path of an open file; 0 if it is not ours, or no longer has a name. */
static int path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, PATH_MAX - 1);
    if (size <= 0) return 0;
    path[size] = 0;
    struct stat about;
    return is_under(path) && fstat(fd, &about) == 0 && about.st_nlink > 0;
}

static void record(char kind, const char *path, const char *other, uint64_t at, const void *data, uint64_t size) {
    int kept = errno;
    char head[25];
    uint32_t path_size = strlen(path), other_size = other ? strlen(other) : 0;
    head[0] = kind;
    memcpy(head + 1, &path_size, 4); memcpy(head + 5, &other_size, 4);
    memcpy(head + 9, &at, 8); memcpy(head + 17, &size, 8);
    struct iovec parts[4] = {{head, 25}, {(void *)path, path_size}, {(void *)other, other_size}, {(void *)data, size}};
    ssize_t whole = 25 + path_size + other_size + size;
    if (writev(journal, parts, 4) != whole) {
        fprintf(stderr, "recording disk: the journal cannot be written\n");
        abort();
    }
    errno = kept;
}

int recording_start(const char *under, const char *into) {
    int opened = open(into, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600); /* before anything is recorded */
    strncpy(folder, under, sizeof folder - 1);
    return (journal = opened) >= 0;
}
void recording_mark(const char *text) {
    pthread_mutex_lock(&order);
    record('A', "", NULL, 0, text, strlen(text));
    pthread_mutex_unlock(&order);
}

#define ACT(call, succeeded, note)        \
    do {                                  \
        pthread_mutex_lock(&order);       \
        call;                             \
        if (succeeded) { note; }          \
        pthread_mutex_unlock(&order);     \
    } while (0)

ssize_t write(int fd, const void *data, size_t size) {
    REAL(write);
    char path[PATH_MAX];
    if (journal < 0 || !path_of(fd, path)) return real(fd, data, size);
    ssize_t done;
    ACT(done = real(fd, data, size), done > 0, record('W', path, NULL, lseek(fd, 0, SEEK_CUR) - done, data, done));
    return done;
}
#define PWRITE(name, offset)                                                                    \
    ssize_t name(int fd, const void *data, size_t size, offset at) {                            \
        REAL(name);                                                                             \
        char path[PATH_MAX];                                                                    \
        if (journal < 0 || !path_of(fd, path)) return real(fd, data, size, at);                 \
        ssize_t done;                                                                           \
        ACT(done = real(fd, data, size, at), done > 0, record('W', path, NULL, at, data, done)); \
        return done;                                                                            \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

#define TRUNCATE(name, offset)                                                        \
    int name(int fd, offset size) {                                                   \
        REAL(name);                                                                   \
        char path[PATH_MAX];                                                          \
        if (journal < 0 || !path_of(fd, path)) return real(fd, size);                 \
        int done;                                                                     \
        ACT(done = real(fd, size), done == 0, record('T', path, NULL, size, NULL, 0)); \
        return done;                                                                  \
    }
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

#define SYNC(name)                                                                \
    int name(int fd) {                                                            \
        REAL(name);                                                               \
        char path[PATH_MAX];                                                      \
        if (journal < 0 || !path_of(fd, path)) return real(fd);                   \
        int done;                                                                 \
        ACT(done = real(fd), done == 0, record('S', path, NULL, 0, NULL, 0));     \
        return done;                                                              \
    }
SYNC(fsync)
SYNC(fdatasync)

#define TWO_NAMES(name, kind)                                                             \
    int name(const char *from, const char *to) {                                          \
        REAL(name);                                                                       \
        if (journal < 0 || !(is_under(from) || is_under(to))) return real(from, to);      \
        int done;                                                                         \
        ACT(done = real(from, to), done == 0, record(kind, from, to, 0, NULL, 0));        \
        return done;                                                                      \
    }
TWO_NAMES(rename, 'R')
TWO_NAMES(link, 'L')

#define ONE_NAME(name, kind)                                                       \
    int name(const char *path) {                                                   \
        REAL(name);                                                                \
        if (journal < 0 || !is_under(path)) return real(path);                     \
        int done;                                                                  \
        ACT(done = real(path), done == 0, record(kind, path, NULL, 0, NULL, 0));   \
        return done;                                                               \
    }
ONE_NAME(unlink, 'U')
ONE_NAME(rmdir, 'D')

int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    if (journal < 0 || !is_under(path)) return real(path, mode);
    int done;
    ACT(done = real(path, mode), done == 0, record('M', path, NULL, 0, NULL, 0));
    return done;
}

#define OPEN(name)                                                                          \
    int name(const char *path, int flags, ...) {                                            \
        REAL(name);                                                                         \
        mode_t mode = 0;                                                                    \
        if (flags & (O_CREAT | O_TMPFILE)) {                                                \
            va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); \
        }                                                                                   \
        if (journal < 0 || !(flags & (O_CREAT | O_TRUNC)) || !is_under(path)) return real(path, flags, mode); \
        int done, is_new;                                                                   \
        ACT((is_new = access(path, F_OK) != 0, done = real(path, flags, mode)), done >= 0,  \
            if (is_new) record('C', path, NULL, 0, NULL, 0);                                \
            else if (flags & O_TRUNC) record('T', path, NULL, 0, NULL, 0));                 \
        return done;                                                                        \
    }
OPEN(open)
OPEN(open64)
