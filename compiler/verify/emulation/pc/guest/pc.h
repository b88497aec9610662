/* The processor and the devices of a PC, as far as the kernel uses them. */
#ifndef MACHINE_H
#define MACHINE_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long u64;
typedef long i64;

enum { SECTOR = 512 };

static inline void out8(u16 port, u8 value) { __asm__ volatile("outb %0, %1" ::"a"(value), "Nd"(port)); }

static inline u8 in8(u16 port) {
  u8 value;
  __asm__ volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
  return value;
}

static inline void write_msr(u32 number, u64 value) {
  __asm__ volatile("wrmsr" ::"c"(number), "a"((u32)value), "d"((u32)(value >> 32)) : "memory");
}

static inline u64 read_clock(void) {
  u32 low, high;
  __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
  return (u64)high << 32 | low;
}

/* Eight bytes at a time, since the emulator takes as long for one. */
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

static inline int starts(const char *text, const char *with) {
  while (*with && *text == *with) ++text, ++with;
  return *with == 0;
}

static inline int same(const char *one, const char *other) { return length(one) == length(other) && starts(one, other); }

/* device.c */
void say(const char *text, u64 size);
void say_text(const char *text);
void say_number(u64 number);
void read_disk(u64 sector, void *to, u64 bytes);
void write_disk(u64 sector, const void *from, u64 bytes);
void prepare_processor(void);
_Noreturn void power_off(void);

/* boot.S */
int run(u64 entry, u64 stack);
_Noreturn void leave(int status);
void syscall_entry(void);
void invalid_entry(void);
extern u8 exceptions[], task[];

/* mend.c */
void forget_mended(void);

/* kernel.c */
_Noreturn void fault(const u64 *frame);

#endif
