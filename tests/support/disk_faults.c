/* Calls on files below a folder fail with EIO while a control file names the folder: "read FOLDER" or "write FOLDER".
 *
 * Preloaded into a Java process, whose files, and RocksDB's, are read and written by these functions of the C library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static char kind[8], folder[4096];
static long looked_ms;

static void look(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    long now_ms = now.tv_sec * 1000 + now.tv_nsec / 1000000;
    if (now_ms - looked_ms < 50)
        return;
    looked_ms = now_ms;
    char text[4200] = "";
    const char *control = getenv("BKMETA_DISK_FAULTS");
    int file = control ? open(control, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        long size = syscall(SYS_read, file, text, sizeof text - 1);
        close(file);
        text[size > 0 ? size : 0] = 0;
    }
    if (sscanf(text, "%7s %4095s", kind, folder) != 2)
        kind[0] = 0;
}

static int fails(int file, const char *wanted) {
    look();
    if (strcmp(kind, wanted))
        return 0;
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    long length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    if (strncmp(path, folder, strlen(folder)))
        return 0;
    errno = EIO;
    return 1;
}

#define FAULTY(wanted, result, name, declared, given)                     \
    result name declared {                                                \
        static result(*real) declared;                                    \
        if (!real)                                                        \
            real = (result(*) declared)dlsym(RTLD_NEXT, #name);           \
        return fails(file, wanted) ? -1 : real given;                     \
    }

FAULTY("read", ssize_t, read, (int file, void *to, size_t size), (file, to, size))
FAULTY("read", ssize_t, pread, (int file, void *to, size_t size, off_t at), (file, to, size, at))
FAULTY("read", ssize_t, pread64, (int file, void *to, size_t size, off64_t at), (file, to, size, at))
FAULTY("read", ssize_t, readv, (int file, const struct iovec *to, int count), (file, to, count))
FAULTY("write", ssize_t, write, (int file, const void *from, size_t size), (file, from, size))
FAULTY("write", ssize_t, pwrite, (int file, const void *from, size_t size, off_t at), (file, from, size, at))
FAULTY("write", ssize_t, pwrite64, (int file, const void *from, size_t size, off64_t at), (file, from, size, at))
FAULTY("write", ssize_t, writev, (int file, const struct iovec *from, int count), (file, from, count))
FAULTY("write", int, fsync, (int file), (file))
FAULTY("write", int, fdatasync, (int file), (file))
