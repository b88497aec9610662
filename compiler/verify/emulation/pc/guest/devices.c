/* The serial port, the disk, and what the processor needs before it runs vector code. */
#include "pc.h"

enum {
  SERIAL = 0x3f8,
  DISK = 0x1f0,
  DISK_CONTROL = 0x3f6,
  POWER = 0xb004,
  READ = 0x20,
  WRITE = 0x30,
  MOST_SECTORS = 128,
  BUSY = 0x80,
  DATA_READY = 8,
  FAILED = 1,
  CODE_SELECTOR = 8,
  TASK_SELECTOR = 24,
  VECTOR_STATES = 0xe7,
  INVALID_OPCODE = 6,
  INVALID_OPCODE_STACK = 0x9c000,
  INTERRUPT_GATE = 0x8e00,
};

enum { STAR = 0xc0000081, LSTAR = 0xc0000082, FMASK = 0xc0000084 };

void print_bytes(const char *text, u64 size) {
  for (u64 index = 0; index < size; ++index) {
    while (!(in8(SERIAL + 5) & 0x20)) continue;
    out8(SERIAL, (u8)text[index]);
  }
}

void print(const char *text) { print_bytes(text, length(text)); }

void print_hex(u64 number) {
  for (int shift = 60; shift >= 0; shift -= 4)
    print_bytes(&"0123456789abcdef"[number >> shift & 15], 1);
}

static void start_transfer(u64 sector, u64 count, u8 command) {
  while (in8(DISK + 7) & BUSY) continue;
  out8(DISK_CONTROL, 2);
  out8(DISK + 6, (u8)(0xe0 | sector >> 24));
  out8(DISK + 2, (u8)count);
  out8(DISK + 3, (u8)sector);
  out8(DISK + 4, (u8)(sector >> 8));
  out8(DISK + 5, (u8)(sector >> 16));
  out8(DISK + 7, command);
}

static void wait_for_disk(void) {
  u8 status;
  while (((status = in8(DISK + 7)) & BUSY) || !(status & (DATA_READY | FAILED))) continue;
  if (status & FAILED) {
    print("the disk failed\n");
    power_off();
  }
}

/* `to` has room for all sectors, complete. */
void read_disk(u64 sector, void *to, u64 bytes) {
  for (u64 left = (bytes + SECTOR - 1) / SECTOR; left;) {
    u64 count = left < MOST_SECTORS ? left : MOST_SECTORS;
    start_transfer(sector, count, READ);
    for (u64 index = 0; index < count; ++index) {
      u64 words = SECTOR / 2;
      wait_for_disk();
      __asm__ volatile("rep insw" : "+D"(to), "+c"(words) : "d"(DISK) : "memory");
    }
    sector += count, left -= count;
  }
}

void write_disk(u64 sector, const void *from, u64 bytes) {
  for (u64 left = (bytes + SECTOR - 1) / SECTOR; left;) {
    u64 count = left < MOST_SECTORS ? left : MOST_SECTORS;
    start_transfer(sector, count, WRITE);
    for (u64 index = 0; index < count; ++index) {
      u64 words = SECTOR / 2;
      wait_for_disk();
      __asm__ volatile("rep outsw" : "+S"(from), "+c"(words) : "d"(DISK) : "memory");
    }
    sector += count, left -= count;
  }
}

static struct {
  u16 low, selector, kind, middle;
  u32 high, reserved;
} gates[32] __attribute__((aligned(16)));

static void set_gate(u64 vector, u64 address, u16 kind) {
  gates[vector].low = (u16)address;
  gates[vector].selector = CODE_SELECTOR;
  gates[vector].kind = kind;
  gates[vector].middle = (u16)(address >> 16);
}

static void set_exception_handlers(void) {
  struct __attribute__((packed)) {
    u16 limit;
    u64 base;
  } descriptor = {sizeof gates - 1, (u64)gates};
  for (u64 vector = 0; vector < 32; ++vector)
    set_gate(vector, (u64)exceptions + 16 * vector, INTERRUPT_GATE);
  set_gate(INVALID_OPCODE, (u64)invalid_opcode_entry, INTERRUPT_GATE | 1);
  *(u64 *)(task + 36) = INVALID_OPCODE_STACK;
  __asm__ volatile("ltr %0" ::"r"((u16)TASK_SELECTOR));
  __asm__ volatile("lidt %0" ::"m"(descriptor));
}

/* Turns on every vector register that the processor has, and sets floating point up as Linux does
 * for a new program. */
static void enable_vectors(void) {
  u64 control;
  u32 states, other, mxcsr = 0x1f80;
  __asm__ volatile("mov %%cr4, %0" : "=r"(control));
  control |= 1u << 9 | 1u << 10 | 1u << 16 | 1u << 18;
  __asm__ volatile("mov %0, %%cr4" ::"r"(control));
  __asm__ volatile("cpuid" : "=a"(states), "=b"(other), "=c"(other), "=d"(other) : "a"(13), "c"(0));
  __asm__ volatile("xsetbv" ::"c"(0), "a"(states & VECTOR_STATES), "d"(0));
  __asm__ volatile("fninit\nldmxcsr %0" ::"m"(mxcsr));
}

void prepare_processor(void) {
  out8(SERIAL + 3, 3); /* bytes of 8 bits */
  set_exception_handlers();
  enable_vectors();
  write_msr(STAR, (u64)CODE_SELECTOR << 32);
  write_msr(LSTAR, (u64)syscall_entry);
  write_msr(FMASK, 0x700);
}

_Noreturn void power_off(void) {
  __asm__ volatile("outw %0, %1" ::"a"((u16)0x2000), "d"((u16)POWER));
  for (const char *letter = "Shutdown"; *letter; ++letter) out8(0x8900, (u8)*letter);
  for (;;) __asm__ volatile("hlt");
}
