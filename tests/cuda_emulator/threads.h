/* The threads of one block, run in turns on the calling thread. */
#pragma once

#include "engine.h"

#define WARP 32
#define MOST_THREADS 1024

/* Run one block of a kernel; `context` has the block's index and the sizes. NULL, or what the threads did wrong.

   order: which thread runs first until it waits, then which is next: 0 rising, 1 falling, else a seed. Threads that do
   not wait for each other where they must compute something else in another order. */
const char *run_block(const struct kernel *kernel, struct context *context, void **arguments, unsigned order);

/* The functions of the context. */
void wait_at_barrier(int line);
unsigned active_lanes(int line);
uint64_t shuffle_lanes(int line, enum shuffle kind, unsigned mask, uint64_t value, int lane, int width);
void report_misaligned(void);
