/* Gathers and a scatter with indices in upper registers; prints what they read or wrote, and what
 * the registers beside them have. */
#include <stdio.h>

enum { COUNT = 16 };

static void show(const char *name, const float *values) {
  printf("%s", name);
  for (int index = 0; index < COUNT; ++index) printf(" %g", values[index]);
  printf("\n");
}

int main(void) {
  float table[64], low[COUNT], wide[COUNT], beside[COUNT], spread[64] = {0};
  long longs[8];
  int ints[COUNT];
  for (int index = 0; index < 64; ++index) table[index] = (float)index;
  for (int index = 0; index < 8; ++index) longs[index] = 7 * index + 1;
  for (int index = 0; index < COUNT; ++index) ints[index] = 3 * index + 2, low[index] = -1;
  __asm__ volatile(
      "vmovups (%[table]), %%zmm0\n vmovups (%[table]), %%zmm1\n"
      "vmovdqu64 (%[longs]), %%zmm19\n kxnorw %%k1, %%k1, %%k1\n"
      "vgatherqps (%[table],%%zmm19,4), %%ymm0%{%%k1%}\n vmovups %%ymm0, (%[low])\n"
      "vmovdqu64 (%[ints]), %%zmm27\n kxnorw %%k1, %%k1, %%k1\n"
      "vgatherdps 4(%[table],%%zmm27,4), %%zmm30%{%%k1%}\n"
      "vmovups %%zmm30, (%[wide])\n kxnorw %%k1, %%k1, %%k1\n"
      "vscatterdps %%zmm30, (%[spread],%%zmm27,4)%{%%k1%}\n"
      "vmovups %%zmm1, (%[beside])\n" ::[table] "r"(table),
      [longs] "r"(longs), [ints] "r"(ints), [low] "r"(low), [wide] "r"(wide), [beside] "r"(beside),
      [spread] "r"(spread)
      : "xmm0", "xmm1", "xmm19", "xmm27", "xmm30", "k1", "memory");
  show("low", low);
  show("wide", wide);
  show("beside", beside);
  show("spread", spread + 2);
  return 7;
}
