/* Runs a DLL for Windows in a program for Linux on the same processor: maps its sections, moves its
 * pointers, binds its imports, and gives what it exports to the rest of the program. The two
 * systems pass arguments in other registers.
 *
 * LIBRARY is its path; `exports.h` has EXPORT(name) for each function that the program calls of it.
 * The format is that of Microsoft's "PE Format". */
#include "library.h"

#include <math.h>

#define WINDOWS static __attribute__((ms_abi))
enum { EXPORTS = 0, IMPORTS = 1, RELOCATIONS = 5, PAGE = 4096 };
enum { EXECUTED = 0x20000000, WRITTEN = 0x80000000 };

static uint8_t *image;
static const uint8_t *header; /* "PE", the file's header and the optional one */

#define UNARY(name) \
  WINDOWS double windows_##name(double x) { return name(x); } \
  WINDOWS float windows_##name##f(float x) { return name##f(x); }
#define BINARY(name) \
  WINDOWS double windows_##name(double x, double y) { return name(x, y); } \
  WINDOWS float windows_##name##f(float x, float y) { return name##f(x, y); }
/* clang-format moves these lines anew each time. */
/* clang-format off */
#define MATHEMATICS \
  UNARY(acos) UNARY(acosh) UNARY(asin) UNARY(asinh) UNARY(atan) \
  UNARY(atanh) UNARY(cos) UNARY(cosh) UNARY(erf) UNARY(exp) \
  UNARY(log) UNARY(sin) UNARY(sinh) UNARY(tan) UNARY(tanh) \
  BINARY(fmod) BINARY(pow)
/* clang-format on */
MATHEMATICS
#undef UNARY
#undef BINARY

WINDOWS double windows_ldexp(double x, int exponent) { return ldexp(x, exponent); }
WINDOWS void *windows_memcpy(void *to, const void *from, size_t n) { return memcpy(to, from, n); }
WINDOWS void *windows_memmove(void *to, const void *from, size_t n) { return memmove(to, from, n); }
WINDOWS void *windows_memset(void *to, int byte, size_t n) { return memset(to, byte, n); }
WINDOWS void windows__aligned_free(void *at) { free(at); }
WINDOWS void *windows__aligned_malloc(size_t bytes, size_t line) {
  void *at = NULL;
  return posix_memalign(&at, line, bytes) == 0 ? at : NULL;
}

static void *function_of(const char *name) {
  static const struct {
    const char *name;
    void *function;
  } known[] = {
#define PLAIN(name) {#name, windows_##name},
#define UNARY(name) PLAIN(name) PLAIN(name##f)
#define BINARY(name) UNARY(name)
      MATHEMATICS PLAIN(ldexp) PLAIN(memcpy) PLAIN(memmove) PLAIN(memset) PLAIN(_aligned_free)
          PLAIN(_aligned_malloc)
#undef PLAIN
#undef UNARY
#undef BINARY
  };
  for (size_t i = 0; i < sizeof known / sizeof *known; ++i)
    if (strcmp(known[i].name, name) == 0) return known[i].function;
  stop("the library calls what its description does not list:", name);
  return NULL;
}

static uint16_t half(const uint8_t *at) { return (uint16_t)(at[0] | at[1] << 8); }
static uint32_t word(const uint8_t *at) { return half(at) | (uint32_t)half(at + 2) << 16; }
static uint64_t *wide(uint32_t address) { return (uint64_t *)(image + address); }
static const uint8_t *directory(int number) { return header + 24 + 112 + 8 * number; }
static const uint8_t *section(int number) {
  return header + 24 + half(header + 20) + (size_t)(40 * number);
}
static int sections(void) { return half(header + 6); }

static void map(const uint8_t *file) {
  header = file + word(file + 0x3c);
  if (memcmp(header, "PE\0", 4) != 0 || half(header + 24) != 0x20b) stop("no 64-bit DLL:", LIBRARY);
  image = reserve(word(header + 24 + 56), PAGE);
  for (int i = 0; i < sections(); ++i) {
    const uint8_t *of = section(i);
    uint32_t bytes = word(of + 8), stored = word(of + 16);
    memcpy(image + word(of + 12), file + word(of + 20), stored < bytes ? stored : bytes);
  }
}

static void relocate(void) {
  const uint8_t *at = image + word(directory(RELOCATIONS)),
                *end = at + word(directory(RELOCATIONS) + 4);
  uint64_t base, size;
  memcpy(&base, header + 24 + 24, sizeof base);
  for (; at < end; at += size) {
    size = word(at + 4);
    for (const uint8_t *entry = at + 8; entry < at + size; entry += 2) {
      int kind = half(entry) >> 12;
      if (kind == 10) *wide(word(at) + (half(entry) & 0xfff)) += (uintptr_t)image - base;
      else if (kind != 0) stop("an unknown relocation in", LIBRARY);
    }
  }
}

static void bind(void) {
  if (word(directory(IMPORTS)) == 0) return;
  for (const uint8_t *of = image + word(directory(IMPORTS)); word(of + 12) != 0; of += 20)
    for (uint64_t *at = wide(word(of + 16)); *at != 0; ++at) {
      if (*at >> 63 != 0) stop("an import without a name from", (char *)image + word(of + 12));
      *at = (uintptr_t)function_of((const char *)image + *at + 2);
    }
}

static void *exported(const char *name) {
  const uint8_t *of = image + word(directory(EXPORTS)), *names = image + word(of + 32);
  for (uint32_t i = 0; i < word(of + 24); ++i)
    if (strcmp((const char *)image + word(names + 4 * i), name) == 0) {
      uint16_t ordinal = half(image + word(of + 36) + 2 * i);
      return image + word(image + word(of + 28) + 4 * ordinal);
    }
  stop("the library does not export", name);
  return NULL;
}

/* Up to four arguments, none of them floating point: rdi, rsi, rdx, rcx become rcx, rdx, r8, r9,
 * above 32 bytes that are the callee's. */
#define EXPORT(name) \
  void *at_##name; \
  __asm__(".globl " #name "\n" #name \
          ":\n" \
          "  subq $40, %rsp\n" \
          "  movq %rcx, %r9\n" \
          "  movq %rdx, %r8\n" \
          "  movq %rsi, %rdx\n" \
          "  movq %rdi, %rcx\n" \
          "  callq *at_" #name \
          "(%rip)\n" \
          "  addq $40, %rsp\n" \
          "  retq\n");
#include "exports.h"
#undef EXPORT

__attribute__((constructor)) static void load(void) {
  map(read_file());
  relocate();
  bind();
#define EXPORT(name) at_##name = exported(#name);
#include "exports.h"
  for (int i = 0; i < sections(); ++i) {
    uint32_t flags = word(section(i) + 36);
    int protection =
        PROT_READ | (flags & EXECUTED ? PROT_EXEC : 0) | (flags & WRITTEN ? PROT_WRITE : 0);
    protect(image + word(section(i) + 12), word(section(i) + 8), PAGE, protection);
  }
}
