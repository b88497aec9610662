/* A Cortex-M processor, for board.c: its start, its calls of the emulator's host, and the SysTick
 * timer, which counts down at BOARD_MHZ on a clock where each instruction takes a nanosecond. */
enum { TICKS = 0xFFFFFF };
#define REGISTER(address) (*(volatile uint32_t *)(address))
#define SYSTICK_CONTROL REGISTER(0xE000E010)
#define SYSTICK_RELOAD REGISTER(0xE000E014)
#define SYSTICK_VALUE REGISTER(0xE000E018)
#define COPROCESSORS REGISTER(0xE000ED88)

static volatile uint32_t rounds;

static uint32_t semihosting(uint32_t operation, const void *given) {
  register uint32_t r0 __asm__("r0") = operation;
  register const void *r1 __asm__("r1") = given;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}

static void tick(void) { ++rounds; }

static void count_from_here(void) {
  rounds = 0;
  SYSTICK_RELOAD = TICKS;
  SYSTICK_VALUE = 0;
  SYSTICK_CONTROL = 7;
}

static uint64_t counted(void) {
  const uint32_t left = SYSTICK_VALUE;
  SYSTICK_CONTROL = 0;
  return (((uint64_t)rounds << 24) + (TICKS - left)) * 1000 / BOARD_MHZ;
}

void board_start(void) {
  COPROCESSORS |= 0xF << 20; /* floating point, and vectors */
  __asm__ volatile("dsb\n isb");
  board_main();
}

__attribute__((section(".vectors"), used)) void *const vectors[16] = {
    stack_top, board_start, fault, fault, fault, fault, fault, [11] = fault, [15] = tick};
