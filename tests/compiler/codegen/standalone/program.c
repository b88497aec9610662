/* Two models in one program, and two contexts of one of them. */
#include "mlp/model.h"
#include "counting/model.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *weights_of(const char *path) {
  FILE *file = fopen(path, "rb");
  void *content = aligned_alloc(64, 1 << 20);
  if (fread(content, 1, 1 << 20, file) == 0) exit(9);
  fclose(file);
  return content;
}

static int kernels[2]; /* how many began, and how many ended */

static void watch(void *user, const char *kernel, int begins) {
  if (user == kernels && kernel[0] != 0) kernels[begins ? 0 : 1] += 1;
}

static int fails(void *user, relaxd_task *task, void *job, int count) {
  (void)user, (void)task, (void)job;
  return count;
}

int main(void) {
  static float x[5000 * 32], y[2][300 * 7];
  const void *weights = weights_of("mlp/weights.bin"), *inputs[] = {x};
  relaxd_mlp *m[2];
  for (int i = 0; i < 300 * 32; ++i) x[i] = (float)(i % 13) / 13;
  for (int i = 0; i < 2; ++i) { /* two contexts of one model at once, bound to different dims */
    int64_t dims[] = {i == 0 ? 300 : 4};
    m[i] = aligned_alloc(64, (relaxd_mlp_size() + 63) / 64 * 64);
    if (relaxd_mlp_open(m[i], weights, NULL) != RELAXD_OK) return 1;
    int64_t need = relaxd_mlp_bind(m[i], dims);
    if (need < 0 || relaxd_mlp_arena(m[i], aligned_alloc(64, (size_t)need + 64 - need % 64)) != RELAXD_OK) return 2;
  }
  for (int i = 0; i < 2; ++i) {
    void *outputs[] = {y[i]};
    if (relaxd_mlp_run(m[i], inputs, i == 0 ? outputs : NULL) != RELAXD_OK) return 3;
  }
  if (memcmp(y[0], relaxd_mlp_output(m[1], 0), 4 * 7 * sizeof(float)) != 0) return 4;
  if (relaxd_mlp_shape(m[1], 0)[0] != 4) return 5;
  relaxd_mlp_watch(m[1], watch, kernels);
  if (relaxd_mlp_run(m[0], inputs, NULL) != RELAXD_OK || kernels[0] != 0) return 7;
  if (relaxd_mlp_run(m[1], inputs, NULL) != RELAXD_OK || kernels[0] != 2 || kernels[1] != 2) return 8;
  relaxd_mlp_watch(m[1], NULL, NULL);
  if (relaxd_mlp_run(m[1], inputs, NULL) != RELAXD_OK || kernels[0] != 2) return 9;
  relaxd_host host = {.parallel = fails, .threads = 2}; /* whose threads all fail */
  int64_t many[] = {5000};
  relaxd_mlp_open(m[1], weights, &host);
  int64_t room = relaxd_mlp_bind(m[1], many);
  relaxd_mlp_arena(m[1], aligned_alloc(64, (size_t)room + 64 - room % 64));
  printf("%d %s\n", relaxd_mlp_run(m[1], inputs, NULL), relaxd_mlp_failure(m[1]));
  int64_t wrong[] = {5001};
  printf("%d %s\n", (int)relaxd_mlp_bind(m[0], wrong), relaxd_mlp_failure(m[0]));
  printf("%d %s\n", relaxd_mlp_run(m[0], inputs, NULL), relaxd_mlp_failure(m[0]));
  const relaxd_interface *about = relaxd_counting_interface();
  printf("%s %s %s %s %d %s %lld %lld\n", about->name, about->input[0].name, about->input[0].dtype, about->input[0].axes[1], about->output[1].rank,
         about->dim[0].name, (long long)about->dim[0].min, (long long)about->dim[0].max);
  relaxd_counting *loop = aligned_alloc(64, (relaxd_counting_size() + 63) / 64 * 64);
  int64_t rows[] = {2}, trips = 100000, need;
  const void *given[] = {x, &trips};
  void *here[] = {y[0], NULL};
  relaxd_counting_open(loop, NULL, NULL);
  need = relaxd_counting_bind(loop, rows);
  relaxd_counting_arena(loop, aligned_alloc(64, (size_t)need + 64 - need % 64));
  printf("%d %s\n", relaxd_counting_run(loop, given, here), relaxd_counting_failure(loop));
  trips = 5;
  if (relaxd_counting_run(loop, given, NULL) != RELAXD_OK) return 6;
  printf("%d\n", (int)relaxd_counting_shape(loop, 0)[0]);
  relaxd_counting_close(loop);
  return 0;
}
