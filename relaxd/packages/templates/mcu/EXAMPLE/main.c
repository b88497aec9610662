/* Runs @short@ once on zeros and prints the first element of each output. */
#include <stdio.h>

#include "@prefix@_model.h"

enum { ARENA = @arena@, TENSORS = 32 << 10 };
static _Alignas(64) uint8_t context[4096], arena[ARENA], tensors[TENSORS];
static size_t used;

/* Zeros for so many elements of a tensor; NULL where there is no place left. */
static void *place(int64_t count, size_t item) {
  void *at = tensors + used;
  if (count < 0 || (uint64_t)count > (TENSORS - used) / item) return NULL;
  used += ((size_t)count * item + 7) / 8 * 8;
  return at;
}

int main(void) {
  const @prefix@_dims dims = {
@each dims@
      .@dim@ = @value@,
@end@
@each no_dims@
      .unused = 0,
@end@
  };
  size_t need = 0;
@each embedded@
  @prefix@ *model = @prefix@_make(context, sizeof context);
@end@
@each weights@
  extern const uint8_t @prefix@_weights[]; /* weights.bin, at a multiple of 64 */
  @prefix@ *model = @prefix@_make(context, sizeof context, @prefix@_weights);
@end@
  if (model == NULL || @prefix@_prepare(model, &dims, arena, sizeof arena, &need) != RELAXD_OK) {
    printf("the model takes an arena of %lu bytes\n", (unsigned long)need);
    return 1;
  }
  const @prefix@_inputs inputs = {
@each inputs@
      .@tensor@ = (@type@ *)place(@prefix@_count_@tensor@(&dims), sizeof(@type@)),
@end@
@each no_inputs@
      .unused = 0,
@end@
  };
  const @prefix@_outputs outputs = {
@each outputs@
      .@tensor@ = (@type@ *)place(@prefix@_elements(model, @index@), sizeof(@type@)),
@end@
  };
  if (@prefix@_compute(model, &inputs, &outputs) != RELAXD_OK) {
    printf("%s\n", @prefix@_failure(model));
    return 1;
  }
@each outputs@
  if (@prefix@_elements(model, @index@) > 0) printf("@tensor@: %g ...\n", (double)outputs.@tensor@[0]);
@end@
  return 0;
}
