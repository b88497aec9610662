/* What Model.kt calls: with model.a it makes lib@PREFIX@.so. */
#define _POSIX_C_SOURCE 200112L /* for posix_memalign */
#include <jni.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

#define NATIVE(type, name) JNIEXPORT type JNICALL Java_relaxd_@CLASS@_native##name
enum { MOST_INPUTS = @INPUTCOUNT@ };

typedef struct {
  @PREFIX@ *model;
  void *arena, *weights;
} held;

static void *room(size_t bytes) {
  void *at = NULL;
  return posix_memalign(&at, 64, bytes + 64) == 0 ? at : NULL;
}

static void fail(JNIEnv *env, const char *type, const char *why) {
  (*env)->ThrowNew(env, (*env)->FindClass(env, type), why);
}

static void check(JNIEnv *env, const held *own, int status) {
  if (status == RELAXD_OK) return;
  const char *kind = status == RELAXD_DIM ? "java/lang/IllegalArgumentException"
                                          : "java/lang/IllegalStateException";
  fail(env, kind, @PREFIX@_failure(own->model));
}

static void let_go(held *own) {
  if (own->model != NULL) @PREFIX@_close(own->model);
  free(own->model);
  free(own->arena);
  free(own->weights);
  free(own);
}

NATIVE(jlong, Open)(JNIEnv *env, jclass type, jobject weights) {
  int64_t size = @PREFIX@_interface()->weights;
  const void *at = weights == NULL ? NULL : (*env)->GetDirectBufferAddress(env, weights);
  held *own;
  (void)type;
  if (size != 0 && (at == NULL || (*env)->GetDirectBufferCapacity(env, weights) < size)) {
    fail(env, "java/lang/IllegalArgumentException",
         "weights must be a direct buffer with all of weights.bin");
    return 0;
  }
  own = calloc(1, sizeof *own);
  if (own != NULL) own->model = room(@PREFIX@_size());
  if (own != NULL && (uintptr_t)at % 64 != 0 && (own->weights = room((size_t)size)) != NULL)
    at = memcpy(own->weights, at, (size_t)size);
  if (own == NULL || own->model == NULL || (uintptr_t)at % 64 != 0) {
    if (own != NULL) {
      free(own->model);
      own->model = NULL;
      let_go(own);
    }
    fail(env, "java/lang/OutOfMemoryError", "a context of @PREFIX@");
    return 0;
  }
  check(env, own, @PREFIX@_open(own->model, at, NULL));
  return (jlong)(intptr_t)own;
}

NATIVE(void, Bind)(JNIEnv *env, jclass type, jlong at, jlongArray dims) {
  held *own = (held *)(intptr_t)at;
  jlong *values = (*env)->GetLongArrayElements(env, dims, NULL);
  int64_t given[@DIMCOUNT@] = {0}, need;
  (void)type;
  if (values == NULL) return;
  for (int i = 0; i < @PREFIX@_interface()->dims; ++i) given[i] = values[i];
  (*env)->ReleaseLongArrayElements(env, dims, values, JNI_ABORT);
  need = @PREFIX@_bind(own->model, given);
  if (need < 0) {
    check(env, own, (int)-need);
    return;
  }
  free(own->arena);
  own->arena = room((size_t)need);
  if (own->arena == NULL) fail(env, "java/lang/OutOfMemoryError", "the arena of @PREFIX@");
  else check(env, own, @PREFIX@_arena(own->model, own->arena));
}

NATIVE(void, Run)(JNIEnv *env, jclass type, jlong at, jobjectArray buffers) {
  held *own = (held *)(intptr_t)at;
  const void *inputs[MOST_INPUTS] = {0};
  (void)type;
  for (int i = 0; i < @PREFIX@_interface()->inputs; ++i)
    inputs[i] = (*env)->GetDirectBufferAddress(env, (*env)->GetObjectArrayElement(env, buffers, i));
  check(env, own, @PREFIX@_run(own->model, inputs, NULL));
}

NATIVE(jobject, Output)(JNIEnv *env, jclass type, jlong at, jint output) {
  const held *own = (const held *)(intptr_t)at;
  const relaxd_tensor *about = &@PREFIX@_interface()->output[output];
  const int64_t *shape = @PREFIX@_shape(own->model, output);
  const void *data = @PREFIX@_output(own->model, output);
  jlong bytes = about->item;
  (void)type;
  for (int axis = 0; axis < about->rank; ++axis) bytes *= shape[axis];
  if (data == NULL || bytes < 0) {
    fail(env, "java/lang/IllegalStateException", "outputs are there after run");
    return NULL;
  }
  return (*env)->NewDirectByteBuffer(env, (void *)data, bytes);
}

NATIVE(jlongArray, Shape)(JNIEnv *env, jclass type, jlong at, jint output) {
  const held *own = (const held *)(intptr_t)at;
  jsize rank = @PREFIX@_interface()->output[output].rank;
  jlongArray result = (*env)->NewLongArray(env, rank);
  (void)type;
  if (result != NULL) {
    const jlong *extents = (const jlong *)@PREFIX@_shape(own->model, output);
    (*env)->SetLongArrayRegion(env, result, 0, rank, extents);
  }
  return result;
}

NATIVE(void, Close)(JNIEnv *env, jclass type, jlong at) {
  (void)env;
  (void)type;
  let_go((held *)(intptr_t)at);
}
