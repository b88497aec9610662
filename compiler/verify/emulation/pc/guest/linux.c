/* The calls of Linux that a C or C++ program on one thread makes. */
#include "kernel.h"

enum call {
  READ = 0,
  WRITE = 1,
  CLOSE = 3,
  STAT = 4,
  FSTAT = 5,
  LSTAT = 6,
  LSEEK = 8,
  MMAP = 9,
  MPROTECT = 10,
  MUNMAP = 11,
  BRK = 12,
  RT_SIGACTION = 13,
  RT_SIGPROCMASK = 14,
  IOCTL = 16,
  PREAD = 17,
  WRITEV = 20,
  ACCESS = 21,
  SCHED_YIELD = 24,
  MREMAP = 25,
  MADVISE = 28,
  GETPID = 39,
  EXIT = 60,
  GETCWD = 79,
  READLINK = 89,
  SIGALTSTACK = 131,
  ARCH_PRCTL = 158,
  GETTID = 186,
  FUTEX = 202,
  SCHED_SETAFFINITY = 203,
  SCHED_GETAFFINITY = 204,
  SET_TID_ADDRESS = 218,
  CLOCK_GETTIME = 228,
  EXIT_GROUP = 231,
  OPENAT = 257,
  NEWFSTATAT = 262,
  READLINKAT = 267,
  SET_ROBUST_LIST = 273,
  PRLIMIT = 302,
  GETRANDOM = 318,
  RSEQ = 334,
  CLONE3 = 435,
};

enum { FS_BASE = 0xc0000100, SET_FS = 0x1002, FIXED = 0x10, ANONYMOUS = 0x20, EMPTY_PATH = 0x1000 };
enum { WAIT = 0, WAIT_BITS = 9, SECOND = 1000000000, ABORTED = 134 };

static i64 map(const u64 *arguments) {
  u64 address = arguments[0], bytes = arguments[1], flags = arguments[3];
  u8 *memory = (u8 *)address;
  if (flags & FIXED) {
    mark_used(address, bytes);
    clear(memory, (bytes + PAGE - 1) / PAGE * PAGE);
  } else if (!(memory = allocate_pages(bytes))) {
    return NO_MEMORY;
  }
  if (!(flags & ANONYMOUS)) read_file(arguments[4], memory, bytes, (i64)arguments[5]);
  return (i64)memory;
}

static i64 remap(const u64 *arguments) {
  u64 old = arguments[1], bytes = arguments[2];
  u8 *memory = allocate_pages(bytes);
  if (!memory) return NO_MEMORY;
  copy(memory, (void *)arguments[0], old < bytes ? old : bytes);
  free_pages(arguments[0], old);
  return (i64)memory;
}

static i64 write_parts(const u64 *arguments) {
  const u64 *parts = (const u64 *)arguments[1];
  i64 total = 0;
  for (u64 index = 0; index < arguments[2]; ++index) {
    i64 written = write_file(arguments[0], (const void *)parts[2 * index], parts[2 * index + 1]);
    if (written < 0) return written;
    total += written;
  }
  return total;
}

static i64 set_thread_pointer(const u64 *arguments) {
  if (arguments[0] != SET_FS) return INVALID;
  write_msr(FS_BASE, arguments[1]);
  return 0;
}

static i64 read_time(u64 *to) {
  u64 clock = read_clock();
  to[0] = clock / SECOND;
  to[1] = clock % SECOND;
  return 0;
}

/* The same bytes each time, so that runs are alike. */
static i64 fill_random(u8 *to, u64 size) {
  for (u64 index = 0; index < size; ++index) to[index] = (u8)(37 * index + 11);
  return (i64)size;
}

/* There is no other thread that could wake one that waits. */
static i64 wait_or_wake(u64 operation) {
  if ((operation & 15) != WAIT && (operation & 15) != WAIT_BITS) return 0;
  print("the program waits for another thread\n");
  exit_program(EXITED | ABORTED);
}

static i64 list_processors(u64 *mask) {
  *mask = 1;
  return sizeof *mask;
}

static i64 describe_relative(const u64 *arguments) {
  const char *path = (const char *)arguments[1];
  void *to = (void *)arguments[2];
  int is_open = (arguments[3] & EMPTY_PATH) && !*path;
  return is_open ? describe_open_file(arguments[0], to) : describe_path(path, to);
}

static i64 reject(u64 number) {
  print("no such call: ");
  print_hex(number);
  print("\n");
  return NO_CALL;
}

/* arguments: the six of a call; returns what Linux would. */
i64 system_call(const u64 *arguments, u64 number) {
  const char *path = (const char *)arguments[0];
  void *second = (void *)arguments[1];
  switch ((enum call)number) {
    case READ: return read_file(arguments[0], second, arguments[2], -1);
    case PREAD: return read_file(arguments[0], second, arguments[2], (i64)arguments[3]);
    case WRITE: return write_file(arguments[0], second, arguments[2]);
    case WRITEV: return write_parts(arguments);
    case OPENAT: return open_file(second, arguments[2]);
    case CLOSE: return close_file(arguments[0]);
    case LSEEK: return seek_file(arguments[0], (i64)arguments[1], arguments[2]);
    case ACCESS: return find_file(path) ? 0 : NO_ENTRY;
    case STAT:
    case LSTAT: return describe_path(path, second);
    case FSTAT: return describe_open_file(arguments[0], second);
    case NEWFSTATAT: return describe_relative(arguments);
    case MMAP: return map(arguments);
    case MREMAP: return remap(arguments);
    case MUNMAP: return free_pages(arguments[0], arguments[1]), 0;
    case ARCH_PRCTL: return set_thread_pointer(arguments);
    case CLOCK_GETTIME: return read_time(second);
    case GETRANDOM: return fill_random((u8 *)arguments[0], arguments[1]);
    case FUTEX: return wait_or_wake(arguments[1]);
    case SCHED_GETAFFINITY: return list_processors((u64 *)arguments[2]);
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
    case EXIT_GROUP: exit_program((int)(EXITED | (arguments[0] & 255)));
  }
  return reject(number);
}
