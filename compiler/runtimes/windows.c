/* What machine code for Windows refers to and no DLL of the system exports. It is compiled without
 * built-in functions: the compiler would make calls of these functions of their own bodies. */
#include <stdint.h>

/* A mark of the linker's for code that uses floating point. */
int _fltused = 1;

/* Touches every page of a stack frame of rax bytes, in order: Windows grows a stack by one guard
 * page at a time. Changes no register. */
#if defined(__x86_64__)
__asm__(
    ".globl ___chkstk_ms\n"
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

#include "conversions.c"
