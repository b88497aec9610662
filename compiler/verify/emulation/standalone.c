/* Runs a model that needs no runtime once: PROGRAM WEIGHTS INPUTS OUTPUTS DIM..., with model.h
 * included ahead of it and its prefix in P.
 *
 * WEIGHTS is the bundle's file, "-" where it has none. INPUTS and OUTPUTS are files of tensors: an
 * int64 count, then for each tensor int64 code, bits, rank and extents, and the values in C order.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOIN(prefix, name) prefix##_##name
#define OF(prefix, name) JOIN(prefix, name)
#define CALL(name) OF(P, name)

/* Around a run, where a run is measured. */
#ifndef BEGIN
#define BEGIN()
#define END(context, arena)
#endif

static void stop(const char *what) {
  fputs(what, stderr);
  fputs("\n", stderr);
  exit(1);
}

static void *room(size_t bytes) {
  void *at = NULL;
  if (posix_memalign(&at, 64, bytes + 64) != 0) stop("out of memory");
  return at;
}

static FILE *opened(const char *path, const char *mode) {
  FILE *file = fopen(path, mode);
  if (file == NULL) stop(path);
  return file;
}

static void read_bytes(FILE *file, void *to, size_t bytes) {
  if (bytes != 0 && fread(to, bytes, 1, file) != 1) stop("a file ends early");
}

static int64_t read_number(FILE *file) {
  int64_t number;
  read_bytes(file, &number, sizeof number);
  return number;
}

static void *read_tensor(FILE *file) {
  int64_t code = read_number(file), bits = read_number(file), rank = read_number(file),
          bytes = bits / 8;
  (void)code;
  for (int64_t axis = 0; axis < rank; ++axis) bytes *= read_number(file);
  void *data = room((size_t)bytes);
  read_bytes(file, data, (size_t)bytes);
  return data;
}

static void *read_weights(const char *path, size_t bytes) {
  if (bytes == 0) return NULL;
  FILE *file = opened(path, "rb");
  void *data = room(bytes);
  read_bytes(file, data, bytes);
  fclose(file);
  return data;
}

/* DLPack's codes. */
static int64_t code_of(const char *dtype) {
  if (strcmp(dtype, "bool") == 0) return 6;
  if (strcmp(dtype, "bfloat16") == 0) return 4;
  return dtype[0] == 'i' ? 0 : dtype[0] == 'u' ? 1 : 2;
}

static void write_bytes(FILE *file, const void *from, size_t bytes) {
  if (bytes != 0 && fwrite(from, bytes, 1, file) != 1) stop("cannot write the outputs");
}

static void write_tensor(FILE *file, const P *model, int output, const relaxd_tensor *about) {
  const int64_t *shape = CALL(shape)(model, output),
                head[] = {code_of(about->dtype), about->item * 8, about->rank};
  size_t bytes = (size_t)about->item;
  write_bytes(file, head, sizeof head);
  write_bytes(file, shape, (size_t)about->rank * sizeof *shape);
  for (int32_t axis = 0; axis < about->rank; ++axis) bytes *= (size_t)shape[axis];
  write_bytes(file, CALL(output)(model, output), bytes);
}

/* A place for an output whose extents are known, NULL for others: those need memory of the host's.
 */
static void *place(const P *model, int output, const relaxd_tensor *about) {
  const int64_t *shape = CALL(shape)(model, output);
  size_t bytes = (size_t)about->item;
  for (int32_t axis = 0; axis < about->rank; ++axis) {
    if (shape[axis] < 0) return NULL;
    bytes *= (size_t)shape[axis];
  }
  return room(bytes);
}

int main(int count, char **arguments) {
  const relaxd_interface *about = CALL(interface)();
  int64_t *dims = calloc((size_t)about->dims + 1, sizeof *dims), need, outputs = about->outputs;
  const void **inputs = calloc((size_t)about->inputs + 1, sizeof *inputs);
  void **results = calloc((size_t)about->outputs + 1, sizeof *results);
  P *model = room(CALL(size)());
  if (count != 4 + about->dims) stop("usage: PROGRAM WEIGHTS INPUTS OUTPUTS DIM...");
  for (int i = 0; i < about->dims; ++i) dims[i] = atoll(arguments[4 + i]);
  if (CALL(open)(model, read_weights(arguments[1], (size_t)about->weights), NULL) != 0)
    stop(CALL(failure)(model));
  need = CALL(bind)(model, dims);
  if (need < 0 || CALL(arena)(model, room((size_t)need)) != 0) stop(CALL(failure)(model));
  FILE *given = opened(arguments[2], "rb");
  if (read_number(given) != about->inputs) stop("another number of inputs");
  for (int i = 0; i < about->inputs; ++i) inputs[i] = read_tensor(given);
  for (int i = 0; i < about->outputs; ++i) results[i] = place(model, i, &about->output[i]);
  BEGIN();
  if (CALL(run)(model, inputs, results) != 0) stop(CALL(failure)(model));
  END(CALL(size)(), need);
  FILE *written = opened(arguments[3], "wb");
  write_bytes(written, &outputs, sizeof outputs);
  for (int i = 0; i < about->outputs; ++i) write_tensor(written, model, i, &about->output[i]);
  if (fclose(written) != 0) stop("cannot write the outputs");
  CALL(close)(model);
  return 0;
}
