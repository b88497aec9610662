// Runs @short@ once on what its inputs hold after start-up, zeros, and prints its first output.
#include <@prefix@_model.h>

const size_t ARENA = @arena@, TENSORS = 32 << 10;
alignas(64) static uint8_t context[4096], arena[ARENA], tensors[TENSORS];
static size_t used;

static void *place(int64_t count, size_t item) {
  void *at = tensors + used;
  if (count < 0 || (uint64_t)count > (TENSORS - used) / item) return nullptr;
  used += ((size_t)count * item + 7) / 8 * 8;
  return at;
}

void setup() {
  Serial.begin(115200);
  @prefix@_dims dims = {};
@each dims@
  dims.@dim@ = @value@;
@end@
  size_t need = 0;
@each embedded@
  @prefix@ *model = @prefix@_make(context, sizeof context);
@end@
@each weights@
  extern const uint8_t @prefix@_weights[]; // weights.bin, at a multiple of 64
  @prefix@ *model = @prefix@_make(context, sizeof context, @prefix@_weights);
@end@
  if (model == nullptr || @prefix@_prepare(model, &dims, arena, sizeof arena, &need) != RELAXD_OK) {
    Serial.println((unsigned long)need);
    return;
  }
  @prefix@_inputs inputs = {};
@each inputs@
  inputs.@tensor@ = static_cast<@type@ *>(place(@prefix@_count_@tensor@(&dims), sizeof(@type@)));
@end@
  @prefix@_outputs outputs = {};
@each outputs@
  outputs.@tensor@ = static_cast<@type@ *>(place(@prefix@_elements(model, @index@), sizeof(@type@)));
@end@
  if (@prefix@_compute(model, &inputs, &outputs) != RELAXD_OK) {
    Serial.println(@prefix@_failure(model));
    return;
  }
@each outputs@
  Serial.println(static_cast<double>(outputs.@tensor@[0]));
@end@
}

void loop() {}
