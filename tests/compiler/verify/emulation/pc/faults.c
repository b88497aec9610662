/* FAULTS KIND OUTPUT: ends as no program should. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char **arguments) {
  const char *kind = count == 3 ? arguments[1] : "";
  FILE *output = count == 3 ? fopen(arguments[2], "wb") : NULL;
  if (output == NULL) return 1;
  if (strcmp(kind, "invalid") == 0) __asm__ volatile("ud2");
  if (strcmp(kind, "endless") == 0)
    for (;;) __asm__ volatile("");
  if (strcmp(kind, "talkative") == 0)
    for (;;) puts("more and more");
  if (strcmp(kind, "too much") == 0) {
    static char block[1 << 16];
    while (fwrite(block, sizeof block, 1, output) == 1) continue;
    return 3;
  }
  if (strcmp(kind, "greedy") == 0) return malloc(1ul << 40) == NULL ? 4 : 0;
  if (strcmp(kind, "reboot") == 0) __asm__ volatile("outb %0, $0x64" ::"a"((char)0xfe));
  if (strcmp(kind, "triple fault") == 0) {
    static const char nothing[10];
    __asm__ volatile("lidt %0\n ud2" ::"m"(nothing));
  }
  fputs("written", output);
  return fclose(output);
}
