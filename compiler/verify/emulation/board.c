/* What standalone.c needs on a board without an operating system: start-up, files of the emulator's
 * host by semihosting, memory that is never given back, and how many instructions a run takes. It
 * is linked before the C library, of which only memcpy and its like are used. What is the
 * processor's is in a file for each family: `semihosting`, `count_from_here`, `counted`, and where
 * it begins, which calls `board_main`. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { OPEN = 0x01, CLOSE = 0x02, WRITE0 = 0x04, WRITE = 0x05, READ = 0x06 };
enum { COMMAND_LINE = 0x15, EXIT = 0x20 };
enum { STOPPED = 0x20026, PAINT = 0xA5, WORDS = 16, LINE = 4096 };

extern uint8_t heap_start[], heap_end[], stack_low[], stack_top[];
extern int main(int count, char **arguments);

static uint8_t *free_from = heap_start;
static struct board_file {
  uint32_t handle;
} files[4];
static char line[LINE];
FILE *const(stderr) = NULL;

_Noreturn void board_main(void);
static void fault(void);
#if defined(__riscv)
#include "board_riscv.h"
#else
#include "board_arm.h"
#endif

_Noreturn void exit(int status) {
  const uint32_t given[] = {STOPPED, (uint32_t)status};
  for (;;) semihosting(EXIT, given);
}

static void say(const char *text) { semihosting(WRITE0, text); }

static void say_number(const char *before, uint64_t number) {
  char digits[21], *first = digits + 20;
  *first = 0;
  do *--first = (char)('0' + number % 10);
  while ((number /= 10) != 0);
  say(before);
  say(first);
}

FILE *fopen(const char *path, const char *mode) {
  size_t length = 0;
  while (path[length] != 0) ++length;
  const uint32_t given[] = {(uint32_t)path, mode[0] == 'w' ? 5 : 1, length};
  const uint32_t handle = semihosting(OPEN, given);
  for (size_t i = 0; handle != UINT32_MAX && i < sizeof files / sizeof *files; ++i) {
    if (files[i].handle != 0) continue;
    files[i].handle = handle;
    return (FILE *)&files[i];
  }
  return NULL;
}

static int transfer(uint32_t operation, const void *at, size_t bytes, FILE *file) {
  const uint32_t given[] = {((struct board_file *)file)->handle, (uint32_t)at, bytes};
  return semihosting(operation, given) == 0;
}

size_t fread(void *to, size_t bytes, size_t count, FILE *file) {
  return transfer(READ, to, bytes * count, file) ? count : 0;
}

size_t fwrite(const void *from, size_t bytes, size_t count, FILE *file) {
  return transfer(WRITE, from, bytes * count, file) ? count : 0;
}

int fclose(FILE *file) {
  semihosting(CLOSE, file);
  ((struct board_file *)file)->handle = 0;
  return 0;
}

int fputs(const char *text, FILE *file) {
  (void)file;
  say(text);
  return 0;
}

int posix_memalign(void **at, size_t alignment, size_t bytes) {
  uint8_t *start = (uint8_t *)(((uintptr_t)free_from + alignment - 1) / alignment * alignment);
  if (bytes > (size_t)(heap_end - start)) return 1;
  *at = start;
  free_from = start + bytes;
  return 0;
}

void *calloc(size_t count, size_t bytes) {
  void *at = NULL;
  return posix_memalign(&at, 8, count * bytes) == 0 ? at : NULL; /* fresh memory is zero */
}

static void fault(void) {
  say("the processor met a fault\n");
  exit(1);
}

void board_begin(void) { count_from_here(); }

/* How far a run went down the stack, and what it took of the emulator's clock, on which each
 * instruction takes a nanosecond. */
void board_end(size_t context, int64_t arena) {
  const uint64_t instructions = counted();
  const uint8_t *deepest = stack_low;
  while (*deepest == PAINT) ++deepest;
  say_number("instructions=", instructions);
  say_number(" stack=", (uint64_t)(stack_top - deepest));
  say_number(" context=", context);
  say_number(" arena=", (uint64_t)arena);
  say("\n");
}

static int words_of(char *text, char **words) {
  int count = 0;
  while (*text != 0 && count < WORDS) {
    words[count++] = text;
    while (*text != 0 && *text != ' ') ++text;
    while (*text == ' ') *text++ = 0;
  }
  return count;
}

_Noreturn void board_main(void) {
  char *words[WORDS];
  const uint32_t given[] = {(uint32_t)line, sizeof line};
  for (volatile uint8_t *at = stack_low; at < (uint8_t *)__builtin_frame_address(0) - 256; ++at)
    *at = PAINT;
  semihosting(COMMAND_LINE, given);
  exit(main(words_of(line, words), words));
}
