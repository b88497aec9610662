/* CUDA C++ as TVM writes it, for a processor: the emulator's driver runs the threads of a block in turns. */
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "../engine.h"

extern "C" struct context emulated_context;

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static __attribute__((section("emulated_shared")))
#define threadIdx emulated_context.thread
#define blockIdx emulated_context.block
#define __syncthreads() emulated_context.barrier(__LINE__)
#define __activemask() emulated_context.active(__LINE__)
#define __shfl_down_sync(mask, value, delta, width) emulated_shuffle(__LINE__, SHUFFLE_DOWN, mask, value, delta, width)
#define __shfl_up_sync(mask, value, delta, width) emulated_shuffle(__LINE__, SHUFFLE_UP, mask, value, delta, width)
#define __shfl_sync(mask, value, lane, width) emulated_shuffle(__LINE__, SHUFFLE_FROM, mask, value, lane, width)

template <typename T>
static inline T emulated_shuffle(int line, enum shuffle kind, unsigned mask, T value, int lane, int width) {
  static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof(T));
  bits = emulated_context.shuffle(line, kind, mask, bits, lane, width);
  memcpy(&value, &bits, sizeof(T));
  return value;
}

/* As the device aligns them: a load from another address is a fault there, and -fsanitize=alignment finds it here. */
#define EMULATED_VECTOR(T, count, name)                                                            \
  typedef T name __attribute__((ext_vector_type(count), aligned(count * sizeof(T) > 16 ? 16 : count * sizeof(T))));
#define EMULATED_VECTORS(T, name)                                                                  \
  EMULATED_VECTOR(T, 2, name##2)                                                                   \
  EMULATED_VECTOR(T, 4, name##4)                                                                   \
  static inline name##2 make_##name##2(T x, T y) { return (name##2){x, y}; }                       \
  static inline name##4 make_##name##4(T x, T y, T z, T w) { return (name##4){x, y, z, w}; }

EMULATED_VECTORS(float, float)
EMULATED_VECTORS(double, double)
EMULATED_VECTORS(int8_t, char)
EMULATED_VECTORS(uint8_t, uchar)
EMULATED_VECTORS(int16_t, short)
EMULATED_VECTORS(uint16_t, ushort)
EMULATED_VECTORS(int32_t, int)
EMULATED_VECTORS(uint32_t, uint)
EMULATED_VECTORS(int64_t, longlong)
EMULATED_VECTORS(uint64_t, ulonglong)

template <typename T> static inline T max(T a, T b) { return a > b ? a : b; }
template <typename T> static inline T min(T a, T b) { return a < b ? a : b; }
/* These give the number where the other is none, as on the device. */
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline float min(float a, float b) { return fminf(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
#define rsqrtf(x) (1 / sqrtf(x))
#define rsqrt(x) (1 / sqrt(x))
static inline float __int_as_float(int bits) { float value; memcpy(&value, &bits, 4); return value; }
