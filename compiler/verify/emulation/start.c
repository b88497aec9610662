/* Where a program begins that is linked against nothing but the C library that runs it: gives the
 * library's own start `main`, and what the kernel and the loader leave in registers and on the
 * stack. */
#if defined(__aarch64__)
__asm__(
    ".globl _start\n"
    "_start:\n"
    "  mov x29, #0\n" /* no caller */
    "  mov x30, #0\n"
    "  mov x5, x0\n"   /* what the loader runs at the end */
    "  ldr x1, [sp]\n" /* how many arguments there are, and they */
    "  add x2, sp, #8\n"
    "  mov x6, sp\n"
    "  adrp x0, main\n"
    "  add x0, x0, :lo12:main\n"
    "  mov x3, #0\n" /* nothing to run before and after main */
    "  mov x4, #0\n"
    "  bl __libc_start_main\n"
    "  brk #0\n");
#elif defined(__x86_64__)
__asm__(
    ".globl _start\n"
    "_start:\n"
    "  xorl %ebp, %ebp\n" /* no caller */
    "  movq %rdx, %r9\n"  /* what the loader runs at the end */
    "  popq %rsi\n"       /* how many arguments there are, and they */
    "  movq %rsp, %rdx\n"
    "  andq $-16, %rsp\n"
    "  pushq %rax\n"
    "  pushq %rsp\n"
    "  xorl %r8d, %r8d\n" /* nothing to run before and after main */
    "  xorl %ecx, %ecx\n"
    "  leaq main(%rip), %rdi\n"
    "  callq *__libc_start_main@GOTPCREL(%rip)\n"
    "  hlt\n");
#else
#error "programs of this architecture are linked statically"
#endif
