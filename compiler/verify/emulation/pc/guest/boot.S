/* Boots from the BIOS's boot sector into 64-bit mode and calls `kernel_main`; the entries through
 * which a program comes back into the kernel. */
#define PAGE_TABLES 0x1000
#define STACK 0x90000
#define IMAGE_SECTORS 100

.section .boot, "ax"
.code16
.globl _start
_start:
  cli
  xorw %ax, %ax
  movw %ax, %ds
  movw %ax, %es
  movw %ax, %ss
  movw $0x7c00, %sp
  /* The rest of the image, by the BIOS. */
  movw $packet, %si
  movb $0x42, %ah
  int $0x13
  movb $'L', %al
  jc failed
  /* Address line 20. */
  inb $0x92, %al
  orb $2, %al
  outb %al, $0x92
  cld
  /* The first 4 GiB of addresses are those of memory: four pages of 1 GiB, which programs may use
   * as the kernel does. */
  movw $PAGE_TABLES, %di
  xorl %eax, %eax
  movw $0x800, %cx
  rep stosl
  movl $(PAGE_TABLES + 0x1000 + 3), PAGE_TABLES
  movl $0x00000083, PAGE_TABLES + 0x1000
  movl $0x40000083, PAGE_TABLES + 0x1008
  movl $0x80000083, PAGE_TABLES + 0x1010
  movl $0xc0000083, PAGE_TABLES + 0x1018
  movl %cr4, %eax
  orl $0x20, %eax
  movl %eax, %cr4
  movl $PAGE_TABLES, %eax
  movl %eax, %cr3
  movl $0xc0000080, %ecx
  rdmsr
  orl $0x101, %eax
  wrmsr
  lgdt descriptor
  movl %cr0, %eax
  andl $0x9ffffff3, %eax
  orl $0x80000003, %eax
  movl %eax, %cr0
  ljmp $8, $long_mode
failed:
  movw $0x3f8, %dx
  outb %al, %dx
  hlt
  jmp failed
packet:
  .byte 16, 0
  .word IMAGE_SECTORS, 0x7e00, 0
  .quad 1
  .balign 8
selectors:
  .quad 0, 0x00209b0000000000, 0x0000930000000000
  .word 103, task, 0x8900, 0
  .quad 0
descriptor:
  .word 39
  .long selectors
  .org 510
  .word 0xaa55

.text
.code64
long_mode:
  movw $16, %ax
  movw %ax, %ds
  movw %ax, %es
  movw %ax, %ss
  movl $STACK, %esp
  movq $bss_begin, %rdi
  movq $bss_end, %rcx
  subq %rdi, %rcx
  xorl %eax, %eax
  rep stosb
  call kernel_main
  hlt

/* int enter_program(entry, stack): returns what `exit_program` is passed. */
.globl enter_program
enter_program:
  pushq %rbx
  pushq %rbp
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, kernel_stack
  movq %rsi, %rsp
  pushq %rdi
  xorl %edx, %edx
  ret
.globl exit_program
exit_program:
  movl %edi, %eax
  movq kernel_stack, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbp
  popq %rbx
  ret

/* Programs run in the kernel's own ring: only the stack changes. The kernel must not write to the
 * program's, as 128 bytes below its pointer may be in use. */
.globl syscall_entry
syscall_entry:
  movq %rsp, program_stack
  movq kernel_stack, %rsp
  pushq %rcx
  pushq %r11
  pushq %r9
  pushq %r8
  pushq %r10
  pushq %rdx
  pushq %rsi
  pushq %rdi
  movq %rsp, %rdi
  movq %rax, %rsi
  call system_call
  popq %rdi
  popq %rsi
  popq %rdx
  popq %r10
  popq %r8
  popq %r9
  popfq
  popq %rcx
  movq program_stack, %rsp
  jmpq *%rcx

/* On a stack of its own, for the same reason. `find_substitute` returns where to go on. */
.globl invalid_opcode_entry
invalid_opcode_entry:
  pushq %rax
  pushq %rcx
  pushq %rdx
  pushq %rsi
  pushq %rdi
  pushq %r8
  pushq %r9
  pushq %r10
  pushq %r11
  movq 72(%rsp), %rdi
  cld
  call find_substitute
  movq %rax, 72(%rsp)
  popq %r11
  popq %r10
  popq %r9
  popq %r8
  popq %rdi
  popq %rsi
  popq %rdx
  popq %rcx
  popq %rax
  iretq

.globl exceptions
.balign 16
exceptions:
.set vector, 0
.rept 32
  .balign 16
  .if (vector != 8) && (vector != 10) && (vector != 11) && (vector != 12) && (vector != 13) && (vector != 14) && (vector != 17)
  pushq $0
  .endif
  pushq $vector
  jmp exception_entry
  .set vector, vector + 1
.endr
exception_entry:
  movq %rsp, %rdi
  movq kernel_stack, %rsp
  call end_by_exception

.bss
.balign 8
kernel_stack: .quad 0
program_stack: .quad 0
.globl task
task: .skip 104
