/* The calls of Linux that a C++ program on one thread makes before, in and after its work. */
#include "kernel.h"

enum call {
  READ = 0, WRITE = 1, CLOSE = 3, STAT = 4, FSTAT = 5, LSTAT = 6, LSEEK = 8, MMAP = 9, MPROTECT = 10, MUNMAP = 11, BRK = 12,
  RT_SIGACTION = 13, RT_SIGPROCMASK = 14, IOCTL = 16, PREAD = 17, WRITEV = 20, ACCESS = 21, SCHED_YIELD = 24, MREMAP = 25,
  MADVISE = 28, GETPID = 39, EXIT = 60, GETCWD = 79, READLINK = 89, SIGALTSTACK = 131, ARCH_PRCTL = 158, GETTID = 186, FUTEX = 202,
  SCHED_SETAFFINITY = 203, SCHED_GETAFFINITY = 204, SET_TID_ADDRESS = 218, CLOCK_GETTIME = 228, EXIT_GROUP = 231, OPENAT = 257,
  NEWFSTATAT = 262, READLINKAT = 267, SET_ROBUST_LIST = 273, PRLIMIT = 302, GETRANDOM = 318, RSEQ = 334, CLONE3 = 435,
};

enum { FS_BASE = 0xc0000100, SET_FS = 0x1002, FIXED = 0x10, ANONYMOUS = 0x20, EMPTY_PATH = 0x1000 };
enum { WAIT = 0, WAIT_BITS = 9, SECOND = 1000000000 };

static i64 map(const u64 *given) {
  u64 address = given[0], bytes = given[1], flags = given[3], offset = given[5];
  u8 *found = (u8 *)address;
  if (flags & FIXED) {
    claim_pages(address, bytes);
    clear(found, (bytes + PAGE - 1) / PAGE * PAGE);
  } else if (!(found = take_pages(bytes))) {
    return NO_MEMORY;
  }
  if (!(flags & ANONYMOUS)) read_file(given[4], found, bytes, (i64)offset);
  return (i64)found;
}

static i64 remap(const u64 *given) {
  u8 *found = take_pages(given[2]);
  if (!found) return NO_MEMORY;
  copy(found, (void *)given[0], given[1] < given[2] ? given[1] : given[2]);
  give_pages(given[0], given[1]);
  return (i64)found;
}

static i64 write_parts(const u64 *given) {
  const u64 *parts = (const u64 *)given[1];
  i64 total = 0;
  for (u64 index = 0; index < given[2]; ++index) {
    i64 done = write_file(given[0], (const void *)parts[2 * index], parts[2 * index + 1]);
    if (done < 0) return done;
    total += done;
  }
  return total;
}

static i64 set_base(const u64 *given) {
  if (given[0] != SET_FS) return INVALID;
  write_msr(FS_BASE, given[1]);
  return 0;
}

static i64 tell_time(u64 *to) {
  u64 clock = read_clock();
  to[0] = clock / SECOND;
  to[1] = clock % SECOND;
  return 0;
}

static i64 fill(u8 *to, u64 size) {
  for (u64 index = 0; index < size; ++index) to[index] = (u8)(37 * index + 11);
  return (i64)size;
}

/* There is one thread, and nobody to wake it. */
static i64 wait_or_wake(u64 operation) {
  if ((operation & 15) != WAIT && (operation & 15) != WAIT_BITS) return 0;
  say_text("the program waits for another thread\n");
  leave(ENDED | 255);
}

static i64 one_processor(u64 *mask) {
  *mask = 1;
  return sizeof *mask;
}

static i64 refuse(u64 number) {
  say_text("no such call: ");
  say_number(number);
  say_text("\n");
  return NO_CALL;
}

/* given: a call's six arguments; what Linux would return. */
i64 syscall(const u64 *given, u64 number) {
  const char *path = (const char *)given[0];
  switch ((enum call)number) {
    case READ: return read_file(given[0], (void *)given[1], given[2], -1);
    case PREAD: return read_file(given[0], (void *)given[1], given[2], (i64)given[3]);
    case WRITE: return write_file(given[0], (const void *)given[1], given[2]);
    case WRITEV: return write_parts(given);
    case OPENAT: return open_file((const char *)given[1], given[2]);
    case CLOSE: return close_file(given[0]);
    case LSEEK: return seek_file(given[0], (i64)given[1], given[2]);
    case ACCESS: return find(path) ? 0 : NO_ENTRY;
    case STAT:
    case LSTAT: return status_of_path(path, (void *)given[1]);
    case FSTAT: return status_of_open(given[0], (void *)given[1]);
    case NEWFSTATAT:
      path = (const char *)given[1];
      return (given[3] & EMPTY_PATH) && !*path ? status_of_open(given[0], (void *)given[2]) : status_of_path(path, (void *)given[2]);
    case MMAP: return map(given);
    case MREMAP: return remap(given);
    case MUNMAP: return give_pages(given[0], given[1]), 0;
    case ARCH_PRCTL: return set_base(given);
    case CLOCK_GETTIME: return tell_time((u64 *)given[1]);
    case GETRANDOM: return fill((u8 *)given[0], given[1]);
    case FUTEX: return wait_or_wake(given[1]);
    case SCHED_GETAFFINITY: return one_processor((u64 *)given[2]);
    case GETPID:
    case GETTID:
    case SET_TID_ADDRESS: return 1;
    case MPROTECT:
    case MADVISE:
    case RT_SIGACTION:
    case RT_SIGPROCMASK:
    case SIGALTSTACK:
    case SET_ROBUST_LIST:
    case SCHED_SETAFFINITY:
    case SCHED_YIELD:
    case BRK: return 0;
    case IOCTL: return INVALID;
    case GETCWD:
    case READLINK:
    case READLINKAT: return NO_ENTRY;
    case PRLIMIT:
    case RSEQ:
    case CLONE3: return NO_CALL;
    case EXIT:
    case EXIT_GROUP: leave(ENDED | (given[0] & 255));
  }
  return refuse(number);
}
