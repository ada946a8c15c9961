/* Makes system calls on some files fail, for `test_failing_calls.py`, which compiles and preloads this library.

   FAILING="CALL ERRNO PART"    CALL on a file whose path contains PART fails with the error number ERRNO
   FAILING_IF=FILE              only while FILE exists

   CALL is one of: open read write names sync lock map allocate. `write` includes opening a file for writing, and
   `names` is creating, renaming and deleting. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int fails(const char *call, const char *path) {
    const char *failing = getenv("FAILING"), *gate = getenv("FAILING_IF");
    char name[16], part[256];
    int number;
    if (!failing || sscanf(failing, "%15s %d %255s", name, &number, part) != 3) return 0;
    if (strcmp(name, call) || !strstr(path, part)) return 0;
    if (gate && faccessat(AT_FDCWD, gate, F_OK, 0)) return 0;
    errno = number;
    return number;
}

static int fails_at(const char *call, int descriptor) {
    char link[64], path[4096];
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = before;
    path[length < 0 ? 0 : length] = 0;
    return fails(call, path);
}

#define REAL(result, name, ...)                        \
    static result (*real)(__VA_ARGS__);                \
    if (!real) real = dlsym(RTLD_NEXT, name)
#define WRITES (O_WRONLY | O_RDWR | O_CREAT)

#define OPEN(NAME)                                                             \
    int NAME(const char *path, int flags, ...) {                               \
        REAL(int, #NAME, const char *, int, ...);                              \
        va_list rest;                                                          \
        va_start(rest, flags);                                                 \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest);                                                          \
        if (fails("open", path)) return -1;                                    \
        if (flags & WRITES && fails("write", path)) return -1;                 \
        return real(path, flags, mode);                                        \
    }
OPEN(open)
OPEN(open64)

/* A function whose first argument is a descriptor. */
#define AT(CALL, RESULT, NAME, TYPES, GIVEN)              \
    RESULT NAME TYPES {                                   \
        static RESULT(*real) TYPES;                       \
        if (!real) real = dlsym(RTLD_NEXT, #NAME);        \
        return fails_at(CALL, fd) ? (RESULT)-1 : real GIVEN; \
    }
AT("lock", int, flock, (int fd, int how), (fd, how))
AT("sync", int, fsync, (int fd), (fd))
AT("sync", int, fdatasync, (int fd), (fd))
AT("read", ssize_t, read, (int fd, void *to, size_t n), (fd, to, n))
AT("read", ssize_t, pread, (int fd, void *to, size_t n, off_t at), (fd, to, n, at))
AT("read", ssize_t, pread64, (int fd, void *to, size_t n, off_t at), (fd, to, n, at))
AT("write", ssize_t, write, (int fd, const void *of, size_t n), (fd, of, n))
AT("write", ssize_t, pwrite, (int fd, const void *of, size_t n, off_t at), (fd, of, n, at))
AT("write", ssize_t, pwrite64, (int fd, const void *of, size_t n, off_t at), (fd, of, n, at))
AT("write", int, ftruncate, (int fd, off_t n), (fd, n))
AT("write", int, ftruncate64, (int fd, off_t n), (fd, n))
AT("allocate", int, fallocate, (int fd, int how, off_t at, off_t n), (fd, how, at, n))
AT("allocate", int, fallocate64, (int fd, int how, off_t at, off_t n), (fd, how, at, n))

#define MAP(NAME)                                                                    \
    void *NAME(void *at, size_t n, int how, int flags, int fd, off_t from) {         \
        REAL(void *, #NAME, void *, size_t, int, int, int, off_t);                   \
        return fd >= 0 && fails_at("map", fd) ? MAP_FAILED : real(at, n, how, flags, fd, from); \
    }
MAP(mmap)
MAP(mmap64)

/* A function whose last path is the name that changes. */
#define NAMES(NAME, TYPES, GIVEN, PATH)            \
    int NAME TYPES {                               \
        static int(*real) TYPES;                   \
        if (!real) real = dlsym(RTLD_NEXT, #NAME); \
        return fails("names", PATH) ? -1 : real GIVEN; \
    }
NAMES(rename, (const char *from, const char *to), (from, to), to)
NAMES(link, (const char *from, const char *to), (from, to), to)
NAMES(unlink, (const char *path), (path), path)
NAMES(mkdir, (const char *path, mode_t mode), (path, mode), path)
