#ifndef RELAXD_STANDALONE
#define RELAXD_STANDALONE 1
#include <stddef.h>
#include <stdint.h>

/* What open, arena and run return; bind returns one of them negated. The model's failure function
 * gives the sentence. */
enum {
  RELAXD_OK = 0,
  RELAXD_DIM = 1,    /* a dim is out of its range, or no multiple of what it must be */
  RELAXD_CHECK = 2,  /* values of the inputs contradict the model: extents that must be equal, an
                        index out of range, an integer division by zero */
  RELAXD_MEMORY = 3, /* allocate gave nothing, or there is no allocate and the model needs one, or
                        a tensor's extents are negative or ask for more than memory can be */
  RELAXD_KERNEL = 4, /* parallel failed */
  RELAXD_USAGE = 5   /* calls in the wrong order, or NULL where there must be something */
};

/* One piece of a kernel's work. slot: which of the host's threads runs it, 0 to threads - 1. */
typedef int relaxd_task(void *job, int index, int slot);

/* What the program around a model gives it. */
typedef struct {
  void *user;
  void *(*allocate)(void *user, size_t bytes); /* memory aligned to 64 bytes, or NULL */
  void (*release)(void *user, void *at);
  /* Runs task(job, i, slot) once for each i below count, and returns 0, or what a task returned
   * other than 0. The caller is slot 0; no two tasks run at once with one slot. One thread where it
   * is NULL. */
  int (*parallel)(void *user, relaxd_task *task, void *job, int count);
  int threads; /* that parallel has, the caller's included */
} relaxd_host;

typedef struct {
  const char *name;
  int64_t min, max, multiple; /* max is INT64_MAX where there is none */
} relaxd_dim;

typedef struct {
  const char *name, *dtype; /* numpy's name of what holds an element */
  int32_t item, rank;       /* item: bytes of an element */
  const char *const *axes;  /* "batch", "2*seq", "384" */
} relaxd_tensor;

typedef struct {
  const char *name;
  int32_t inputs, outputs, dims; /* how many of each */
  int32_t parallel;              /* 1 where kernels share out loops by the host's parallel */
  const relaxd_tensor *input, *output;
  const relaxd_dim *dim; /* in the order in which bind takes them */
  int64_t weights;       /* bytes of weights.bin; 0: open takes NULL */
} relaxd_interface;
#endif
