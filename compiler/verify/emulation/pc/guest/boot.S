/* From the BIOS's boot sector to the kernel in 64-bit mode, and the doors from programs back into the kernel. */
#define TABLES 0x1000
#define SELECTORS 0x7800
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
  movw $packet, %si
  movb $0x42, %ah
  int $0x13
  movb $'L', %al
  jc failed
  inb $0x92, %al
  orb $2, %al
  outb %al, $0x92
  cld
  /* Addresses are as they are, 4 GB of them: one table of tables, four pages of a gigabyte. */
  movw $TABLES, %di
  xorl %eax, %eax
  movw $0x800, %cx
  rep stosl
  movl $(TABLES + 0x1000 + 3), TABLES
  movl $0x00000083, TABLES + 0x1000
  movl $0x40000083, TABLES + 0x1008
  movl $0x80000083, TABLES + 0x1010
  movl $0xc0000083, TABLES + 0x1018
  movl %cr4, %eax
  orl $0x20, %eax
  movl %eax, %cr4
  movl $TABLES, %eax
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

/* int run(entry, stack): enters a program; what `leave` is given comes back. */
.globl run
run:
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
.globl leave
leave:
  movl %edi, %eax
  movq kernel_stack, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbp
  popq %rbx
  ret

/* Programs run in the kernel's own ring, so only the stack changes; what lies below a program's stack pointer is its own. */
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
  call syscall
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

/* On a stack of its own, since below a program's stack pointer lies what it has not done with. */
.globl invalid_entry
invalid_entry:
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
  call mend
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
  jmp fault_entry
  .set vector, vector + 1
.endr
fault_entry:
  movq %rsp, %rdi
  movq kernel_stack, %rsp
  call fault

.bss
.balign 8
kernel_stack: .quad 0
program_stack: .quad 0
.globl task
task: .skip 104
