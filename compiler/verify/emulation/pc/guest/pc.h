/* The processor and the devices of a PC, as far as the kernel uses them. */
#ifndef PC_H
#define PC_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long u64;
typedef long i64;

enum { SECTOR = 512 };

static inline void out8(u16 port, u8 value) {
  __asm__ volatile("outb %0, %1" ::"a"(value), "Nd"(port));
}

static inline u8 in8(u16 port) {
  u8 value;
  __asm__ volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
  return value;
}

static inline void write_msr(u32 number, u64 value) {
  u32 low = (u32)value, high = (u32)(value >> 32);
  __asm__ volatile("wrmsr" ::"c"(number), "a"(low), "d"(high) : "memory");
}

static inline u64 read_clock(void) {
  u32 low, high;
  __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
  return (u64)high << 32 | low;
}

/* Eight bytes at a time: the emulator takes as long for one. */
static inline void copy(void *to, const void *from, u64 size) {
  u64 words = size / 8, bytes = size % 8;
  __asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(words)::"memory");
  __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes)::"memory");
}

static inline void clear(void *to, u64 size) {
  u64 words = size / 8, bytes = size % 8;
  __asm__ volatile("rep stosq" : "+D"(to), "+c"(words) : "a"(0ul) : "memory");
  __asm__ volatile("rep stosb" : "+D"(to), "+c"(bytes) : "a"(0ul) : "memory");
}

static inline u64 length(const char *text) {
  u64 count = 0;
  while (text[count]) ++count;
  return count;
}

static inline int are_equal(const char *lhs, const char *rhs) {
  while (*lhs && *lhs == *rhs) ++lhs, ++rhs;
  return *lhs == *rhs;
}

/* devices.c */
void print_bytes(const char *text, u64 size);
void print(const char *text);
void print_hex(u64 number);
void read_disk(u64 sector, void *to, u64 bytes);
void write_disk(u64 sector, const void *from, u64 bytes);
void prepare_processor(void);
_Noreturn void power_off(void);

/* boot.S */
int enter_program(u64 entry, u64 stack);
_Noreturn void exit_program(int status);
void syscall_entry(void);
void invalid_opcode_entry(void);
extern u8 exceptions[], task[];

/* kernel.c */
_Noreturn void end_by_exception(const u64 *frame);

#endif
