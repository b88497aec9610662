/* Tasks that show what threads of a WebAssembly module do. */
#include "interface.h"
#include "team.h"

#define EXPORT(name) __attribute__((export_name("unit_" #name)))
enum { TASKS = 8 };
extern unsigned char __heap_base;
static size_t top;
static int32_t arrived[TASKS], slots[TASKS];

EXPORT(allocate) void *allocate(size_t bytes) {
  if (top == 0) top = ((size_t)&__heap_base + 63) / 64 * 64;
  top += bytes;
  if (top > (size_t)__builtin_wasm_memory_size(0) << 16)
    __builtin_wasm_memory_grow(0, bytes / 65536 + 1);
  return (void *)(top - bytes);
}

EXPORT(team) int team(int helpers, int waits) {
  rd_helpers = helpers;
  rd_waits = waits;
  return 0;
}
EXPORT(help) void help(int number) { rd_help(&rd_team[number - 1]); }

/* Ends when each of `count` tasks has begun: where threads run them at the same time. */
static int meet(void *job, int index, int slot) {
  int count = *(const int *)job;
  slots[index] = slot;
  __atomic_store_n(&arrived[index], 1, __ATOMIC_SEQ_CST);
  for (int i = 0; i < count; ++i)
    while (__atomic_load_n(&arrived[i], __ATOMIC_SEQ_CST) == 0) continue;
  return 0;
}

EXPORT(together) int together(int count) {
  int bits = 0;
  for (int i = 0; i < TASKS; ++i) arrived[i] = 0;
  if (rd_parallel(NULL, meet, &count, count) != 0) return -1;
  for (int i = 0; i < count; ++i) bits |= 1 << slots[i];
  return bits;
}

/* What follows goes wrong on a helper, after the leader's task has seen it begin. */
enum { STATUS = 7, TRAP = 8, LATE = 9 };
static int fail(void *job, int index, int slot) {
  int how = *(const int *)job;
  volatile int work = 0;
  (void)slot;
  __atomic_store_n(&arrived[index], 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&arrived[1], __ATOMIC_SEQ_CST) == 0) continue;
  if (index == 0) return 0;
  if (how == TRAP) __builtin_trap();
  if (how == LATE)
    while (work < 200000000) ++work;
  return how;
}

EXPORT(failing) int failing(int how) {
  arrived[0] = arrived[1] = 0;
  return rd_parallel(NULL, fail, &how, 2);
}
