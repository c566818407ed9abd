// Imitates a file system that stalls; preloaded (LD_PRELOAD) into the unchanged program. STALLED_FILES names a file.
// While its only line is "RANK TEXT" (RANK -1: all ranks), calls on that rank that read, write, open, list or flush a
// file whose path contains TEXT wait. OPENED_FILES, if set, names a file to which each open appends a line "RANK PATH".
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

// Uses only system calls: the functions below replace those of the C library.
static int stalls(const char* path) {
  const char* const control = getenv("STALLED_FILES");
  if (control == NULL) return 0;
  const int file = (int)syscall(SYS_openat, AT_FDCWD, control, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  char line[512] = {0};
  const long got = syscall(SYS_read, file, line, sizeof(line) - 1);
  syscall(SYS_close, file);
  char* text = got > 0 ? strchr(line, ' ') : NULL;
  if (text == NULL) return 0;
  *text++ = '\0';
  text[strcspn(text, "\n")] = '\0';
  const char* const rank = getenv("OMPI_COMM_WORLD_RANK");
  if (atoi(line) >= 0 && atoi(line) != atoi(rank == NULL ? "0" : rank)) return 0;
  return text[0] != '\0' && strstr(path, text) != NULL;
}

static void wait_for_path(const char* path) {
  const struct timespec moment = {0, 20 * 1000 * 1000};
  while (stalls(path)) nanosleep(&moment, NULL);
}

static void note_open(const char* path) {
  const char* const log = getenv("OPENED_FILES");
  if (log == NULL) return;
  const char* const rank = getenv("OMPI_COMM_WORLD_RANK");
  char line[4200];
  const int length = snprintf(line, sizeof(line), "%s %s\n", rank == NULL ? "0" : rank, path);
  const int file = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (file < 0) return;
  syscall(SYS_write, file, line, length);
  syscall(SYS_close, file);
}

static void wait_for(int descriptor) {
  char link[64], path[4096];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", descriptor);
  const long length = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof(path) - 1);
  if (length <= 0) return;
  path[length] = '\0';
  wait_for_path(path);
}

#define NEXT(type, name) ((type)dlsym(RTLD_NEXT, name))

#define POSITIONED(name, offset_type)                                                                 \
  ssize_t name(int descriptor, void* data, size_t bytes, offset_type offset) {                        \
    wait_for(descriptor);                                                                             \
    return NEXT(ssize_t(*)(int, void*, size_t, offset_type), #name)(descriptor, data, bytes, offset); \
  }
POSITIONED(pread, off_t)
POSITIONED(pread64, off64_t)

#define POSITIONED_WRITE(name, offset_type)                                                                 \
  ssize_t name(int descriptor, const void* data, size_t bytes, offset_type offset) {                        \
    wait_for(descriptor);                                                                                   \
    return NEXT(ssize_t(*)(int, const void*, size_t, offset_type), #name)(descriptor, data, bytes, offset); \
  }
POSITIONED_WRITE(pwrite, off_t)
POSITIONED_WRITE(pwrite64, off64_t)

ssize_t read(int descriptor, void* data, size_t bytes) {
  wait_for(descriptor);
  return NEXT(ssize_t(*)(int, void*, size_t), "read")(descriptor, data, bytes);
}
ssize_t write(int descriptor, const void* data, size_t bytes) {
  wait_for(descriptor);
  return NEXT(ssize_t(*)(int, const void*, size_t), "write")(descriptor, data, bytes);
}
int fsync(int descriptor) {
  wait_for(descriptor);
  return NEXT(int (*)(int), "fsync")(descriptor);
}

#define OPEN(name)                                                         \
  int name(const char* path, int flags, ...) {                             \
    mode_t mode = 0;                                                       \
    if (flags & (O_CREAT | __O_TMPFILE)) {                                 \
      va_list rest;                                                        \
      va_start(rest, flags);                                               \
      mode = va_arg(rest, mode_t);                                         \
      va_end(rest);                                                        \
    }                                                                      \
    wait_for_path(path);                                                   \
    note_open(path);                                                       \
    return NEXT(int (*)(const char*, int, ...), #name)(path, flags, mode); \
  }
OPEN(open)
OPEN(open64)

int openat(int folder, const char* path, int flags, ...) {  // std::filesystem lists folders with it
  mode_t mode = 0;
  if (flags & (O_CREAT | __O_TMPFILE)) {
    va_list rest;
    va_start(rest, flags);
    mode = va_arg(rest, mode_t);
    va_end(rest);
  }
  wait_for_path(path);
  note_open(path);
  return NEXT(int (*)(int, const char*, int, ...), "openat")(folder, path, flags, mode);
}
