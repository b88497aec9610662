/* @name@, compiled by relaxd for @target@: the model with typed inputs and outputs, in memory that
 * the program gives. C11 and C++. */
#ifndef @guard@_MODEL_H
#define @guard@_MODEL_H
#include <stddef.h>
#include <stdint.h>

#include "@prefix@.h"

/* The values that a dim may have: multiples of one number, from MIN to MAX. */
@each dims@
#define @guard@_@constant@_MIN INT64_C(@min@)
#define @guard@_@constant@_MAX INT64_C(@max@)
#define @guard@_@constant@_MULTIPLE INT64_C(@multiple@)
@end@

/* What prepare takes. */
typedef struct {
@each dims@
  int64_t @dim@; /* @about@ */
@end@
@each no_dims@
  char unused;
@end@
} @prefix@_dims;

/* What compute takes, each in C's order. */
typedef struct {
@each inputs@
  /* @about@ */
@each read@
  const @type@ *@tensor@;
@end@
@each written@
  @type@ *@tensor@;
@end@
@end@
@each no_inputs@
  char unused;
@end@
} @prefix@_inputs;

/* Where compute writes, each in C's order: @prefix@_shape gives the extents. */
typedef struct {
@each outputs@
  @type@ *@tensor@; /* @about@ */
@end@
} @prefix@_outputs;

enum { @guard@_ALIGNMENT = 64 };

@each inputs@
/* The number of elements of @tensor@. */
static inline int64_t @prefix@_count_@tensor@(const @prefix@_dims *dims) {
  const int64_t shape[] = {1, @shape@};
  int64_t all = 1;
  (void)dims;
  for (size_t i = 0; i < sizeof shape / sizeof *shape; ++i) all *= shape[i];
  return all;
}

@end@
/* The number of elements of an output, by its number, after prepare. */
static inline int64_t @prefix@_elements(const @prefix@ *model, int output) {
  static const int ranks[] = {
@each outputs@
      @rank@,
@end@
  };
  const int64_t *shape = @prefix@_shape(model, output);
  int64_t all = 1;
  for (int i = 0; i < ranks[output]; ++i) all *= shape[i];
  return all;
}

/* Makes a model in memory of `bytes`, at least @prefix@_size(), at a multiple of
 * @guard@_ALIGNMENT: NULL where it is too small, elsewhere or no weights are given. */
@each embedded@
static inline @prefix@ *@prefix@_make(void *context, size_t bytes) {
  const void *weights = NULL;
@end@
@each weights@
static inline @prefix@ *@prefix@_make(void *context, size_t bytes, const void *weights) {
@end@
  @prefix@ *model = (@prefix@ *)context;
  if (bytes < @prefix@_size() || (uintptr_t)context % @guard@_ALIGNMENT != 0) return NULL;
  return @prefix@_open(model, weights, NULL) == RELAXD_OK ? model : NULL;
}

/* Sets the dims, and gives the model working memory at a multiple of @guard@_ALIGNMENT. Returns
 * RELAXD_OK or another code of @prefix@.h, of which @prefix@_failure gives the sentence;
 * RELAXD_MEMORY where the arena has less than the `need` bytes that these dims take. */
static inline int @prefix@_prepare(@prefix@ *model, const @prefix@_dims *dims, void *arena,
                                   size_t bytes, size_t *need) {
  const int64_t values[] = {
@each dims@
      dims->@dim@,
@end@
      0};
  const int64_t wanted = @prefix@_bind(model, values);
  (void)dims;
  if (wanted < 0) return (int)-wanted;
  *need = (size_t)wanted;
  if ((uint64_t)wanted > bytes) return RELAXD_MEMORY;
  return @prefix@_arena(model, arena);
}

/* Computes the outputs: RELAXD_OK or another code of @prefix@.h. */
static inline int @prefix@_compute(@prefix@ *model, const @prefix@_inputs *inputs,
                                   const @prefix@_outputs *outputs) {
  const void *given[] = {
@each inputs@
      inputs->@tensor@,
@end@
      NULL};
  void *written[] = {
@each outputs@
      outputs->@tensor@,
@end@
      NULL};
  (void)inputs;
  return @prefix@_run(model, given, written);
}
#endif
