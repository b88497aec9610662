/* A RISC-V processor of 32 bits, for board.c: its start, its calls of the emulator's host, and its
 * own count of instructions. Neither is the global pointer set, nor the thread pointer. */
static uint64_t first;

static uint32_t semihosting(uint32_t operation, const void *given) {
  register uint32_t a0 __asm__("a0") = operation;
  register const void *a1 __asm__("a1") = given;
  /* The emulator tells this break from others by its neighbours, of four bytes each. */
  __asm__ volatile(
      ".option push\n"
      ".option norvc\n"
      ".balign 16\n"
      "slli x0, x0, 0x1f\n"
      "ebreak\n"
      "srai x0, x0, 7\n"
      ".option pop\n"
      : "+r"(a0)
      : "r"(a1)
      : "memory");
  return a0;
}

/* The number has two halves, of which the upper may change between two reads. */
static uint64_t retired(void) {
  uint32_t high, low, again;
  do
    __asm__ volatile(
        ".option push\n"
        ".option arch, +zicsr\n"
        "csrr %0, minstreth\n"
        "csrr %1, minstret\n"
        "csrr %2, minstreth\n"
        ".option pop\n"
        : "=r"(high), "=r"(low), "=r"(again));
  while (high != again);
  return ((uint64_t)high << 32) | low;
}

static void count_from_here(void) { first = retired(); }

static uint64_t counted(void) { return retired() - first; }

/* Any trap ends the program: an instruction that the processor lacks, too. */
__attribute__((aligned(4), used)) static void trapped(void) { fault(); }

__attribute__((naked, section(".vectors"), used)) void board_start(void) {
  __asm__ volatile(
      ".option push\n"
      ".option arch, +zicsr\n"
      "la sp, stack_top\n"
      "la t0, trapped\n"
      "csrw mtvec, t0\n"
#if defined(__riscv_flen)
      "li t0, 0x2000\n" /* floating point */
      "csrs mstatus, t0\n"
#endif
      "j board_main\n"
      ".option pop\n");
}
