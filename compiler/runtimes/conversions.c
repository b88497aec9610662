/* Conversions of 16-bit floats, which machine code calls where the processor has no instruction for
 * them. CONVERSION: attributes of each. */
#include <stdint.h>

#ifndef CONVERSION
#define CONVERSION
#endif

/* The nearest number of fewer bits, ties to even. exponent, fraction: bits of its parts. */
static uint16_t narrow(double x, int exponent, int fraction) {
  const uint64_t infinity = UINT64_C(0x7ff) << 52;
  const int bias = (1 << (exponent - 1)) - 1, least = 1 - bias;
  const uint16_t ends = (uint16_t)(((1 << exponent) - 1) << fraction);
  uint64_t bits, kept, lost, half;
  uint16_t sign;
  int scale, dropped = 52 - fraction;
  __builtin_memcpy(&bits, &x, sizeof bits);
  sign = (uint16_t)(bits >> 63 << 15);
  bits &= ~(UINT64_C(1) << 63);
  if (bits > infinity) { /* the fraction's first bit makes the NaN a quiet one */
    kept = bits >> dropped & (((uint64_t)1 << fraction) - 1);
    return (uint16_t)(sign | ends | kept | (uint64_t)1 << (fraction - 1));
  }
  scale = (int)(bits >> 52) - 1023;
  if (scale > bias) return (uint16_t)(sign | ends);
  if (scale < least - fraction - 1) return sign;
  if (scale >= least) {
    bits -= (uint64_t)(1023 - bias) << 52;
  } else { /* subnormal: the leading bit is written out */
    bits = (bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1) << 52;
    dropped += least - scale;
  }
  kept = bits >> dropped;
  lost = bits & ((UINT64_C(1) << dropped) - 1);
  half = UINT64_C(1) << (dropped - 1);
  /* A carry out of the fraction goes on into the exponent, up to infinity. */
  kept += lost > half || (lost == half && (kept & 1));
  return (uint16_t)(sign | kept);
}

static _Float16 half_of(double x) {
  uint16_t bits = narrow(x, 5, 10);
  _Float16 result;
  __builtin_memcpy(&result, &bits, sizeof result);
  return result;
}

static __bf16 bfloat_of(double x) {
  uint16_t bits = narrow(x, 8, 7);
  __bf16 result;
  __builtin_memcpy(&result, &bits, sizeof result);
  return result;
}

CONVERSION _Float16 __truncdfhf2(double x) { return half_of(x); }
CONVERSION _Float16 __truncsfhf2(float x) { return half_of(x); }
CONVERSION __bf16 __truncdfbf2(double x) { return bfloat_of(x); }
CONVERSION __bf16 __truncsfbf2(float x) { return bfloat_of(x); }

CONVERSION float __extendhfsf2(_Float16 x) {
  uint16_t half;
  uint32_t sign, rest, bits;
  float result;
  __builtin_memcpy(&half, &x, sizeof half);
  sign = (uint32_t)(half & 0x8000) << 16;
  rest = half & 0x7fff;
  if (rest < 0x400) { /* subnormal or zero: a multiple of the least number */
    result = (float)rest * 0x1p-24f;
    __builtin_memcpy(&bits, &result, sizeof bits);
  } else {
    bits = rest << 13;
    bits += rest < 0x7c00 ? (uint32_t)(127 - 15) << 23 : (uint32_t)(255 - 31) << 23;
    if (rest > 0x7c00) bits |= 0x400000; /* a quiet NaN */
  }
  bits |= sign;
  __builtin_memcpy(&result, &bits, sizeof result);
  return result;
}
