/* Nanoseconds of processor time of a call at the least dims: PROGRAM WEIGHTS CALLS, with model.h
 * included ahead of it and its prefix in P. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define JOIN(prefix, name) prefix##_##name
#define OF(prefix, name) JOIN(prefix, name)
#define CALL(name) OF(P, name)

enum { ROOM = 1 << 16 };

static void *room(size_t bytes) {
  void *at = NULL;
  if (posix_memalign(&at, 64, bytes + 64) != 0) exit(1);
  return memset(at, 0, bytes + 64);
}

static double now(void) {
  struct timespec at;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
  return at.tv_sec * 1e9 + at.tv_nsec;
}

int main(int count, char **arguments) {
  const relaxd_interface *about = CALL(interface)();
  if (count != 3) return 2;
  long calls = atol(arguments[2]);
  P *model = room(CALL(size)());
  void *weights = room((size_t)about->weights);
  FILE *file = fopen(arguments[1], "rb");
  if (file == NULL || fread(weights, (size_t)about->weights, 1, file) != 1) return 1;
  int64_t dims[16];
  for (int i = 0; i < about->dims; ++i) dims[i] = about->dim[i].min;
  if (CALL(open)(model, weights, NULL) != 0) return 1;
  int64_t need = CALL(bind)(model, dims);
  if (need < 0 || CALL(arena)(model, room((size_t)need)) != 0) return 1;
  const void *inputs[16];
  void *outputs[16];
  for (int i = 0; i < about->inputs; ++i) inputs[i] = room(ROOM);
  for (int i = 0; i < about->outputs; ++i) outputs[i] = room(ROOM);
  for (int round = 0; round < 9; ++round) {
    double from = now();
    for (long i = 0; i < calls; ++i)
      if (CALL(run)(model, inputs, outputs) != 0) return 1;
    printf("%.1f\n", (now() - from) / calls);
  }
  return 0;
}
