/* What machine code for Windows refers to and no DLL of the system exports. It is compiled without
 * built-in functions: the compiler would make calls of these functions of their own bodies. */
#include <stdint.h>

/* A mark of the linker's for code that uses floating point. */
int _fltused = 1;

/* Touches every page of a stack frame of rax bytes, in order: Windows grows a stack by one guard
 * page at a time. Changes no register. */
#if defined(__x86_64__)
__asm__(".globl ___chkstk_ms\n"
        "___chkstk_ms:\n"
        "  pushq %rcx\n"
        "  pushq %rax\n"
        "  leaq 24(%rsp), %rcx\n" /* the caller's stack pointer */
        "1:\n"
        "  cmpq $4096, %rax\n"
        "  jb 2f\n"
        "  subq $4096, %rcx\n"
        "  testq %rcx, (%rcx)\n"
        "  subq $4096, %rax\n"
        "  jmp 1b\n"
        "2:\n"
        "  subq %rax, %rcx\n"
        "  testq %rcx, (%rcx)\n"
        "  popq %rax\n"
        "  popq %rcx\n"
        "  retq\n");
#endif

double ldexp(double, int);
double sin(double);
double cos(double);
float sinf(float);
float cosf(float);

float ldexpf(float x, int exponent) { return (float)ldexp(x, exponent); }

void sincos(double x, double *sine, double *cosine) {
  *sine = sin(x);
  *cosine = cos(x);
}

void sincosf(float x, float *sine, float *cosine) {
  *sine = sinf(x);
  *cosine = cosf(x);
}

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

_Float16 __truncdfhf2(double x) { return half_of(x); }
_Float16 __truncsfhf2(float x) { return half_of(x); }
__bf16 __truncdfbf2(double x) { return bfloat_of(x); }
__bf16 __truncsfbf2(float x) { return bfloat_of(x); }

float __extendhfsf2(_Float16 x) {
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
