/* Runs a Mach-O library in a program for Linux on the same processor: maps its segments, moves and
 * binds its pointers as dyld does, and gives what it exports to the rest of the program.
 *
 * LIBRARY is its path; `exports.h` has EXPORT(name) for each function that the program calls of it,
 * `calls.h` has CALL(name) for each that it may call of the program. The formats of commands and of
 * the opcodes of LC_DYLD_INFO are those of Apple's <mach-o/loader.h>. */
#include "library.h"

enum { SEGMENT = 0x19, SYMBOLS = 2, DYLD_INFO = 0x22, CHAINED = 0x34, SEGMENTS = 16 };
enum { EXTERNAL_IN_SECTION = 0xf, TYPE = 0xf };
static const uint64_t PAGE = 16 << 10;

typedef struct {
  uint32_t command, size;
} command;
typedef struct {
  uint32_t command, size;
  char name[16];
  uint64_t address, bytes, offset, stored;
  int32_t most, protection;
  uint32_t sections, flags;
} segment;
typedef struct {
  uint32_t command, size, symbols, count, names, bytes;
} symbol_table;
typedef struct {
  uint32_t command, size;
  struct {
    uint32_t offset, bytes;
  } rebase, bind, weak, lazy;
} dyld_info;
typedef struct {
  uint32_t name;
  uint8_t type, section;
  uint16_t description;
  uint64_t address;
} symbol;

static uint8_t *file, *image;
static const segment *segments[SEGMENTS];
static const symbol_table *table;
static const dyld_info *info;
static int segment_count;

/* What Apple's library has and others have not. */
typedef struct {
  float sine, cosine;
} floats;
typedef struct {
  double sine, cosine;
} doubles;
float sinf(float), cosf(float);
double sin(double), cos(double);
static floats sincosf_stret(float x) { return (floats){sinf(x), cosf(x)}; }
static doubles sincos_stret(double x) { return (doubles){sin(x), cos(x)}; }
static void clear(void *at, size_t bytes) { memset(at, 0, bytes); }
static void fill16(void *at, const void *pattern, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) ((uint8_t *)at)[i] = ((const uint8_t *)pattern)[i % 16];
}
static float widened(_Float16 x) { return (float)x; }
static _Float16 narrowed(float x) { return (_Float16)x; }
static void lazily(void) { stop("a symbol is bound at its first call", ""); }

#define CALL(name) extern const char c_##name __asm__(#name);
#include "calls.h"
#undef CALL

static void *function_of(const char *name) {
  static const struct {
    const char *name;
    const void *function;
  } known[] = {
#define CALL(name) {"_" #name, &c_##name},
#include "calls.h"
#undef CALL
      {"___sincosf_stret", sincosf_stret},
      {"___sincos_stret", sincos_stret},
      {"_bzero", clear},
      {"_memset_pattern16", fill16},
      {"___extendhfsf2", widened},
      {"___truncsfhf2", narrowed},
      {"dyld_stub_binder", lazily},
  };
  for (size_t i = 0; i < sizeof known / sizeof *known; ++i)
    if (strcmp(known[i].name, name) == 0) return (void *)known[i].function;
  stop("the library calls what its description does not list:", name);
  return NULL;
}

static uint64_t unsigned_number(const uint8_t **at) {
  uint64_t number = 0;
  for (int shift = 0;; shift += 7) {
    uint8_t byte = *(*at)++;
    number |= (uint64_t)(byte & 0x7f) << shift;
    if ((byte & 0x80) == 0) return number;
  }
}

static int64_t signed_number(const uint8_t **at) {
  const uint8_t *from = *at;
  uint64_t number = unsigned_number(at);
  int bits = (int)(*at - from) * 7;
  if (bits < 64 && (number >> (bits - 1) & 1) != 0) number |= ~UINT64_C(0) << bits;
  return (int64_t)number;
}

static uint8_t **pointer(int segment, uint64_t offset) {
  if (segment >= segment_count || offset + 8 > segments[segment]->bytes)
    stop("a pointer lies outside of its segment", "");
  return (uint8_t **)(image + segments[segment]->address + offset);
}

/* An opcode has four bits of its own and an operand of four. */
static void rebase(const uint8_t *at, const uint8_t *end) {
  uint64_t offset = 0, count, skip;
  int segment = 0;
  while (at < end) {
    uint8_t operand = *at & 0xf, opcode = *at++ >> 4;
    count = skip = 0;
    switch (opcode) {
      case 0: return;
      case 1: break; /* the type: pointers alone are there */
      case 2:
        segment = operand;
        offset = unsigned_number(&at);
        break;
      case 3: offset += unsigned_number(&at); break;
      case 4: offset += operand * 8; break;
      case 5: count = operand; break;
      case 6: count = unsigned_number(&at); break;
      case 7:
        count = 1;
        skip = unsigned_number(&at);
        break;
      case 8:
        count = unsigned_number(&at);
        skip = unsigned_number(&at);
        break;
      default: stop("an unknown opcode", "");
    }
    for (; count > 0; --count, offset += 8 + skip) *pointer(segment, offset) += (uintptr_t)image;
  }
}

static void bind(const uint8_t *at, const uint8_t *end) {
  uint64_t offset = 0, count, skip;
  int64_t addend = 0;
  int segment = 0;
  const char *name = "";
  while (at < end) {
    uint8_t operand = *at & 0xf, opcode = *at++ >> 4;
    count = skip = 0;
    switch (opcode) {
      case 0: break; /* the end, or that of one lazy pointer */
      case 1:
      case 3:
      case 5: break; /* the library and the type */
      case 2: unsigned_number(&at); break;
      case 4:
        name = (const char *)at;
        at += strlen(name) + 1;
        break;
      case 6: addend = signed_number(&at); break;
      case 7:
        segment = operand;
        offset = unsigned_number(&at);
        break;
      case 8: offset += unsigned_number(&at); break;
      case 9: count = 1; break;
      case 10:
        count = 1;
        skip = unsigned_number(&at);
        break;
      case 11:
        count = 1;
        skip = operand * 8;
        break;
      case 12:
        count = unsigned_number(&at);
        skip = unsigned_number(&at);
        break;
      default: stop("an unknown opcode", "");
    }
    for (; count > 0; --count, offset += 8 + skip)
      *pointer(segment, offset) = (uint8_t *)function_of(name) + addend;
  }
}

static void read_commands(void) {
  const uint32_t *header = (const uint32_t *)file;
  const uint8_t *at = file + 32;
  if (header[0] != 0xfeedfacf) stop("not a 64-bit library:", LIBRARY);
  for (uint32_t i = 0; i < header[4]; ++i, at += ((const command *)at)->size) {
    switch (((const command *)at)->command & 0x7fffffff) {
      case SEGMENT:
        if (segment_count == SEGMENTS) stop("too many segments:", LIBRARY);
        segments[segment_count++] = (const segment *)at;
        break;
      case SYMBOLS: table = (const symbol_table *)at; break;
      case DYLD_INFO: info = (const dyld_info *)at; break;
      case CHAINED: stop("pointers are chained:", LIBRARY);
    }
  }
  if (table == NULL || info == NULL || segment_count == 0) stop("no dyld info:", LIBRARY);
}

static void map(void) {
  const segment *last = segments[segment_count - 1];
  image = reserve(last->address + last->bytes, PAGE);
  for (int i = 0; i < segment_count; ++i) {
    if (segments[i]->address % PAGE != 0) stop("a segment begins inside of a page:", LIBRARY);
    memcpy(image + segments[i]->address, file + segments[i]->offset, segments[i]->stored);
  }
}

static void *exported(const char *name) {
  const symbol *symbols = (const symbol *)(file + table->symbols);
  for (uint32_t i = 0; i < table->count; ++i) {
    const char *own = (const char *)file + table->names + symbols[i].name;
    if ((symbols[i].type & TYPE) == EXTERNAL_IN_SECTION && own[0] == '_' &&
        strcmp(own + 1, name) == 0)
      return image + symbols[i].address;
  }
  stop("the library does not export", name);
  return NULL;
}

/* A call of an exported function goes on at its address, with all arguments where they are. */
#define EXPORT(name) \
  void *at_##name; \
  __asm__(".globl " #name "\n" #name \
          ":\n" \
          "  adrp x16, at_" #name \
          "\n" \
          "  ldr x16, [x16, :lo12:at_" #name \
          "]\n" \
          "  br x16\n");
#include "exports.h"
#undef EXPORT

__attribute__((constructor)) static void load(void) {
  file = read_file();
  read_commands();
  map();
  rebase(file + info->rebase.offset, file + info->rebase.offset + info->rebase.bytes);
  bind(file + info->bind.offset, file + info->bind.offset + info->bind.bytes);
  bind(file + info->lazy.offset, file + info->lazy.offset + info->lazy.bytes);
#define EXPORT(name) at_##name = exported(#name);
#include "exports.h"
  /* The numbers of protections are those of mmap. */
  for (int i = 0; i < segment_count; ++i)
    protect(image + segments[i]->address, segments[i]->bytes, PAGE, segments[i]->protection);
}
