/* Threads as fibers. Each runs until it waits for others; when all wait or have ended, warps exchange values, else the
   barrier opens. Warps are taken to stay together wherever their threads can, as compilers for the device arrange it. */

#include "threads.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define STACK (256 << 10)

enum state { READY, AT_BARRIER, AT_ACTIVE, AT_SHUFFLE, ENDED };

struct fiber {
  void *stack_pointer;
  enum state state;
  int line, lane, width;
  enum shuffle kind;
  unsigned mask;
  uint64_t value, result;
};

static struct fiber fibers[MOST_THREADS];
static char *stacks;
static unsigned turns[MOST_THREADS], count, current;
static void *scheduler;
static const struct kernel *kernel_run;
static struct context *context_run;
static void **arguments_run;
static char fault[256];
static void *left[5];

/* Save the registers that a call keeps on the stack, and go on with those on another stack. */
void switch_stack(void **from, void *to);
__asm__(
    ".globl switch_stack\n.type switch_stack, @function\nswitch_stack:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");

static struct fiber *wait_as(enum state state, int line) {
  struct fiber *self = &fibers[current];
  self->state = state;
  self->line = line;
  switch_stack(&self->stack_pointer, scheduler);
  return self;
}

void wait_at_barrier(int line) { wait_as(AT_BARRIER, line); }

unsigned active_lanes(int line) { return (unsigned)wait_as(AT_ACTIVE, line)->result; }

uint64_t shuffle_lanes(int line, enum shuffle kind, unsigned mask, uint64_t value, int lane, int width) {
  struct fiber *self = &fibers[current];
  self->kind = kind;
  self->mask = mask;
  self->value = value;
  self->lane = lane;
  self->width = width;
  return wait_as(AT_SHUFFLE, line)->result;
}

/* The code behind it counts on what is not so: the block ends here. */
void report_misaligned(void) {
  snprintf(fault, sizeof fault, "%s: thread %u loads or stores a vector at an address that its type does not allow", kernel_run->name, current);
  __builtin_longjmp(left, 1);
}

static void begin_thread(void) {
  kernel_run->call(arguments_run);
  wait_as(ENDED, 0);
  abort();
}

static void prepare(unsigned index) {
  /* Stacks that begin at different offsets of a page do not fight for the same sets of the caches. */
  uint64_t *top = (uint64_t *)(stacks + (size_t)(index + 1) * STACK - index % 64 * 192);
  *--top = 0; /* the address begin_thread would return to; it also aligns the stack as after a call */
  *--top = (uint64_t)(uintptr_t)begin_thread;
  for (int saved = 0; saved < 6; ++saved) *--top = 0;
  fibers[index] = (struct fiber){.stack_pointer = top};
}

static void place(unsigned index) {
  struct triple size = context_run->block_size;
  context_run->thread = (struct triple){index % size.x, index / size.x % size.y, index / size.x / size.y};
}

static void arrange(unsigned order) {
  for (unsigned i = 0; i < count; ++i) turns[i] = order == 1 ? count - 1 - i : i;
  if (order < 2) return;
  for (unsigned i = count - 1; i > 0; --i) {
    order = order * 1664525u + 1013904223u;
    unsigned other = (order >> 8) % (i + 1), kept = turns[i];
    turns[i] = turns[other];
    turns[other] = kept;
  }
}

static int run_ready(void) {
  int ended = 1;
  for (unsigned i = 0; i < count; ++i) {
    current = turns[i];
    if (fibers[current].state == READY) {
      place(current);
      switch_stack(&scheduler, fibers[current].stack_pointer);
    }
    ended &= fibers[current].state == ENDED;
  }
  return ended;
}

/* The lanes of a warp that wait at the same place as `lane`. */
static unsigned together(const struct fiber *warp, unsigned lanes, unsigned lane) {
  unsigned found = 0;
  for (unsigned i = 0; i < lanes; ++i)
    if (warp[i].state == warp[lane].state && warp[i].line == warp[lane].line) found |= 1u << i;
  return found;
}

static int source_of(const struct fiber *lane, int index) {
  int base = index & ~(lane->width - 1), from = lane->lane;
  if (lane->kind == SHUFFLE_DOWN) from = index + lane->lane < base + lane->width ? index + lane->lane : index;
  if (lane->kind == SHUFFLE_UP) from = index - lane->lane >= base ? index - lane->lane : index;
  if (lane->kind == SHUFFLE_FROM) from = base | (lane->lane & (lane->width - 1));
  return from;
}

static void exchange(struct fiber *warp, unsigned group) {
  for (int i = 0; i < WARP; ++i) {
    if (!(group >> i & 1)) continue;
    int from = source_of(&warp[i], i);
    /* What a lane outside of the mask has is not defined. */
    warp[i].result = group >> from & 1 ? warp[from].value : UINT64_MAX;
    warp[i].state = READY;
  }
}

static int release_warp(struct fiber *warp, unsigned lanes) {
  int released = 0;
  for (unsigned i = 0; i < lanes; ++i) {
    unsigned group = together(warp, lanes, i);
    if (warp[i].state == AT_ACTIVE) {
      for (unsigned j = i; j < lanes; ++j)
        if (group >> j & 1) warp[j].result = group, warp[j].state = READY;
      released = 1;
    } else if (warp[i].state == AT_SHUFFLE && warp[i].mask == group) {
      exchange(warp, group);
      released = 1;
    }
  }
  return released;
}

static const char *open_barrier(void) {
  int line = 0;
  for (unsigned i = 0; i < count; ++i) {
    if (fibers[i].state == ENDED) continue;
    if (fibers[i].state != AT_BARRIER) {
      snprintf(fault, sizeof fault, "%s: thread %u shuffles under mask %08x at line %d, where not all of these lanes are",
               kernel_run->name, i, fibers[i].mask, fibers[i].line);
      return fault;
    }
    if (line && line != fibers[i].line) {
      snprintf(fault, sizeof fault, "%s: threads wait at barriers of lines %d and %d", kernel_run->name, line, fibers[i].line);
      return fault;
    }
    line = fibers[i].line;
  }
  for (unsigned i = 0; i < count; ++i)
    if (fibers[i].state == AT_BARRIER) fibers[i].state = READY;
  return NULL;
}

static const char *run_in_turns(unsigned order) {
  if (stacks == NULL) {
    stacks = mmap(NULL, (size_t)MOST_THREADS * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED) return "no memory for the threads' stacks";
  }
  for (unsigned i = 0; i < count; ++i) prepare(i);
  while (!run_ready()) {
    int released = 0;
    for (unsigned warp = 0; warp < count; warp += WARP)
      released |= release_warp(&fibers[warp], count - warp < WARP ? count - warp : WARP);
    const char *failed = released ? NULL : open_barrier();
    if (failed) return failed;
  }
  return NULL;
}

const char *run_block(const struct kernel *kernel, struct context *context, void **arguments, unsigned order) {
  kernel_run = kernel;
  context_run = context;
  arguments_run = arguments;
  count = context->block_size.x * context->block_size.y * context->block_size.z;
  arrange(order);
  if (__builtin_setjmp(left)) return fault;
  if (kernel->waits) return run_in_turns(order);
  for (unsigned i = 0; i < count; ++i) {
    current = turns[i];
    place(current);
    kernel->call(arguments);
  }
  return NULL;
}
