/* What a library of emulated kernels and the emulated driver know of each other. */
#pragma once

#include <stdint.h>

enum shuffle { SHUFFLE_DOWN, SHUFFLE_UP, SHUFFLE_FROM };

struct triple {
  unsigned x, y, z;
};

/* `emulated_context` of a library of kernels: where all its shared memory lies, and what the driver writes.

   What waits gives the source line that it waits at: threads of one warp wait together only at the same line. */
struct context {
  char *shared, *shared_end;
  struct triple thread, block, block_size, grid_size;
  void (*barrier)(int line);
  unsigned (*active)(int line);
  uint64_t (*shuffle)(int line, enum shuffle kind, unsigned mask, uint64_t value, int lane, int width);
  void (*misaligned)(void);
};

/* A kernel: `emulated_<name>` in its library. `waits`: whether its threads wait for each other anywhere. */
struct kernel {
  const char *name;
  void (*call)(void **arguments);
  unsigned threads;
  int waits;
  unsigned count;
  const unsigned char *sizes;
  const unsigned char *pointers;
};
