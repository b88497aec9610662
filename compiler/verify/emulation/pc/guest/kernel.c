/* Runs the disk's commands one after another, each in the same memory, and writes back how they ended. */
#include "kernel.h"

enum { STACK_BYTES = 1 << 20, LOADED = 1, INTERPRETER = 3, SHARED = 3, WORDS = 64 };
enum { PHDR = 3, PHENT = 4, PHNUM = 5, PAGESZ = 6, BASE = 7, ENTRY = 9, CLKTCK = 17, SECURE = 23, RANDOM = 25, EXECFN = 31 };

struct program {
  u8 identity[16];
  u16 kind, machine;
  u32 version;
  u64 entry, headers, sections;
  u32 flags;
  u16 size, header_size, header_count;
};

struct segment {
  u32 kind, flags;
  u64 offset, address, physical, size, memory, alignment;
};

/* Were functions bound when they are first called, the loader would save all registers, which Bochs 2.7 does not always do right. */
static const char *const environment[] = {"TVM_NUM_THREADS=1", "LD_BIND_NOW=1"};

struct heading *const table = (struct heading *)0x200000;
struct file *files(void) { return (struct file *)(table + 1); }
struct command *commands(void) { return (struct command *)(files() + table->files); }

static const struct segment *segment_at(const struct program *program, u64 index) {
  return (const struct segment *)((const u8 *)program + program->headers) + index;
}

static u64 extent(const struct program *program) {
  u64 most = 0;
  for (u64 index = 0; index < program->header_count; ++index) {
    const struct segment *segment = segment_at(program, index);
    if (segment->kind == LOADED && segment->address + segment->memory > most) most = segment->address + segment->memory;
  }
  return most;
}

/* Copies a file's segments to where they belong; what their addresses are relative to. */
static u64 place(const struct file *file) {
  const struct program *program = (const struct program *)file->content;
  u64 base = program->kind == SHARED ? (u64)take_pages(extent(program)) : 0;
  for (u64 index = 0; index < program->header_count; ++index) {
    const struct segment *segment = segment_at(program, index);
    if (segment->kind != LOADED) continue;
    u8 *to = (u8 *)(base + segment->address);
    claim_pages((u64)to, segment->memory);
    copy(to, file->content + segment->offset, segment->size);
    clear(to + segment->size, segment->memory - segment->size);
  }
  return base;
}

static const char *interpreter_of(const struct file *file) {
  const struct program *program = (const struct program *)file->content;
  for (u64 index = 0; index < program->header_count; ++index)
    if (segment_at(program, index)->kind == INTERPRETER) return (const char *)file->content + segment_at(program, index)->offset;
  return 0;
}

/* Where a program finds its own headers in memory. */
static u64 headers_at(const struct program *program, u64 base) {
  const struct segment *first = segment_at(program, 0);
  return base + program->headers + first->address - first->offset;
}

/* The stack as a program finds it: its words, its environment, what the kernel tells it. */
static u64 *fill_stack(struct command *command, struct file *file, u64 base, u64 interpreter) {
  const struct program *program = (const struct program *)file->content;
  u64 *stack = (u64 *)(take_pages(STACK_BYTES) + STACK_BYTES) - 2 * WORDS, *next = stack;
  const char *word = command->words;
  u64 told[][2] = {
      {PHDR, headers_at(program, base)},
      {PHENT, sizeof(struct segment)},
      {PHNUM, program->header_count},
      {PAGESZ, PAGE},
      {BASE, interpreter},
      {ENTRY, base + program->entry},
      {CLKTCK, 100},
      {SECURE, 0},
      {RANDOM, (u64)file->path},
      {EXECFN, (u64)file->path},
      {0, 0},
  };
  *next++ = command->count;
  for (u64 index = 0; index < command->count; ++index, word += length(word) + 1) *next++ = (u64)word;
  *next++ = 0;
  for (u64 index = 0; index < sizeof environment / sizeof *environment; ++index) *next++ = (u64)environment[index];
  *next++ = 0;
  copy(next, told, sizeof told);
  return stack;
}

/* One program from its start to its end: ENDED and its status, 126 and 127 as shells mean them. */
static int execute(struct command *command) {
  struct file *file = find(command->words), *interpreter = 0;
  forget_pages(table->memory);
  forget_open();
  forget_mended();
  if (!file) return ENDED | 127;
  load(file);
  const char *name = interpreter_of(file);
  if (name) {
    interpreter = find(name);
    if (!interpreter) return ENDED | 126;
    load(interpreter);
  }
  u64 base = place(file), linker = interpreter ? place(interpreter) : 0;
  u64 *stack = fill_stack(command, file, base, linker);
  u64 entry = interpreter ? linker + ((struct program *)interpreter->content)->entry : base + ((struct program *)file->content)->entry;
  return run(entry, (u64)stack);
}

/* An exception ends the command: what it was, where, and the bytes of the instruction. */
_Noreturn void fault(const u64 *frame) {
  say_text("exception ");
  say_number(frame[0]);
  say_text(" at ");
  say_number(frame[2]);
  if (frame[2] < table->memory) {
    say_text(", code ");
    say_number(__builtin_bswap64(*(const u64 *)frame[2]));
  }
  say_text("\n");
  leave((int)(ENDED | 128 | frame[0]));
}

void kernel_main(void) {
  prepare_processor();
  read_disk(TABLE_SECTOR, table, SECTOR);
  read_disk(TABLE_SECTOR, table, table->bytes);
  for (u64 index = 0; index < table->files; ++index) files()[index].content = 0, files()[index].inode = index + 16;
  for (u64 index = 0; index < table->commands; ++index) {
    u64 began = read_clock();
    commands()[index].status = (u32)execute(&commands()[index]);
    commands()[index].clocks = read_clock() - began;
  }
  save_written();
  write_disk(TABLE_SECTOR, table, table->bytes);
  power_off();
}
