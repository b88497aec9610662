/* A kernel for one program: reads it and its files from the disk, runs it, writes the files that it
 * wrote and its exit status back, and turns the machine off.
 *
 * It makes the calls of Linux that a C or C++ program on one thread needs, and no others. The
 * program runs in the kernel's ring and can do with this machine what it likes: the machine has
 * nothing but this disk and a serial port. */
#include "kernel.h"

enum { STACK_BYTES = 1 << 20, STACK_WORDS = 1024, NOT_EXECUTABLE = 126, NOT_THERE = 127 };
enum { LOADED = 1, INTERPRETER = 3, SHARED = 3 }; /* ELF's kinds of segments and programs */
enum { SIGNALLED = 128 };

/* The auxiliary vector's kinds of entries. */
enum {
  PHDR = 3,
  PHENT = 4,
  PHNUM = 5,
  PAGESZ = 6,
  BASE = 7,
  ENTRY = 9,
  CLKTCK = 17,
  SECURE = 23,
  RANDOM = 25,
  EXECFN = 31,
};

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

/* Were functions bound when they are first called, the loader would save all registers, which Bochs
 * 2.7 does not always do right. */
static const char *const environment[] = {"TVM_NUM_THREADS=1", "LD_BIND_NOW=1"};

struct heading *const table = (struct heading *)0x200000;
struct file *files(void) { return (struct file *)(table + 1); }

static const struct program *program_of(const struct file *file) {
  return (const struct program *)file->content;
}

static const struct segment *segment_at(const struct program *program, u64 index) {
  return (const struct segment *)((const u8 *)program + program->headers) + index;
}

static u64 bytes_in_memory(const struct program *program) {
  u64 most = 0;
  for (u64 index = 0; index < program->header_count; ++index) {
    const struct segment *segment = segment_at(program, index);
    u64 end = segment->address + segment->memory;
    if (segment->kind == LOADED && end > most) most = end;
  }
  return most;
}

/* Copies the file's segments to their addresses, and returns what those are relative to. */
static u64 load_segments(const struct file *file) {
  const struct program *program = program_of(file);
  u64 base = program->kind == SHARED ? (u64)allocate_pages(bytes_in_memory(program)) : 0;
  for (u64 index = 0; index < program->header_count; ++index) {
    const struct segment *segment = segment_at(program, index);
    if (segment->kind != LOADED) continue;
    u8 *to = (u8 *)(base + segment->address);
    mark_used((u64)to, segment->memory);
    copy(to, file->content + segment->offset, segment->size);
    clear(to + segment->size, segment->memory - segment->size);
  }
  return base;
}

/* The path of the dynamic loader that the program begins with; NULL for a static program. */
static const char *interpreter_of(const struct file *file) {
  const struct program *program = program_of(file);
  for (u64 index = 0; index < program->header_count; ++index)
    if (segment_at(program, index)->kind == INTERPRETER)
      return (const char *)file->content + segment_at(program, index)->offset;
  return 0;
}

/* Where the program's own headers lie in memory. */
static u64 headers_at(const struct program *program, u64 base) {
  const struct segment *first = segment_at(program, 0);
  return base + program->headers + first->address - first->offset;
}

/* The stack with which the program begins: arguments, environment, auxiliary vector. */
static u64 *make_stack(const struct file *file, u64 base, u64 interpreter) {
  const struct program *program = program_of(file);
  u64 *stack = (u64 *)(allocate_pages(STACK_BYTES) + STACK_BYTES) - STACK_WORDS, *next = stack;
  const char *word = table->words;
  u64 auxiliary[][2] = {
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
  *next++ = table->arguments;
  for (u64 index = 0; index < table->arguments; ++index, word += length(word) + 1)
    *next++ = (u64)word;
  *next++ = 0;
  for (u64 index = 0; index < sizeof environment / sizeof *environment; ++index)
    *next++ = (u64)environment[index];
  *next++ = 0;
  copy(next, auxiliary, sizeof auxiliary);
  return stack;
}

/* The program from its start to its end: EXITED and its status, or what shells say where it cannot
 * start. */
static int run_program(void) {
  struct file *file = find_file(table->words), *interpreter = 0;
  if (!file) return EXITED | NOT_THERE;
  if (!load_file(file)) return EXITED | NOT_EXECUTABLE;
  const char *name = interpreter_of(file);
  if (name) {
    interpreter = find_file(name);
    if (!interpreter || !load_file(interpreter)) return EXITED | NOT_EXECUTABLE;
  }
  u64 base = load_segments(file), loader = interpreter ? load_segments(interpreter) : 0;
  u64 *stack = make_stack(file, base, loader);
  u64 own = base + program_of(file)->entry;
  return enter_program(interpreter ? loader + program_of(interpreter)->entry : own, (u64)stack);
}

/* Ends the program, and prints the exception's number, its place and the instruction there. */
_Noreturn void end_by_exception(const u64 *frame) {
  print("exception ");
  print_hex(frame[0]);
  print(" at ");
  print_hex(frame[2]);
  if (frame[2] < table->memory) {
    print(", code ");
    print_hex(__builtin_bswap64(*(const u64 *)frame[2]));
  }
  print("\n");
  exit_program((int)(EXITED | SIGNALLED | frame[0]));
}

void kernel_main(void) {
  prepare_processor();
  read_disk(TABLE_SECTOR, table, sizeof *table);
  read_disk(TABLE_SECTOR, table, table->bytes);
  prepare_pages(table->memory);
  for (u64 index = 0; index < table->files; ++index)
    files()[index].content = 0, files()[index].inode = index + 16;
  table->status = (u32)run_program();
  save_written_files();
  write_disk(TABLE_SECTOR, table, table->bytes);
  power_off();
}
