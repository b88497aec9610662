/* Gathers and a scatter with indices in upper registers; prints what they read or wrote, and what the registers beside them hold. */
#include <stdio.h>

enum { COUNT = 16 };

static void show(const char *name, const float *values) {
  printf("%s", name);
  for (int place = 0; place < COUNT; ++place) printf(" %g", values[place]);
  printf("\n");
}

int main(void) {
  float table[64], low[COUNT], wide[COUNT], kept[COUNT], spread[64] = {0};
  long far[8];
  int near[COUNT];
  for (int place = 0; place < 64; ++place) table[place] = (float)place;
  for (int place = 0; place < 8; ++place) far[place] = 7 * place + 1;
  for (int place = 0; place < COUNT; ++place) near[place] = 3 * place + 2, low[place] = -1;
  __asm__ volatile(
      "vmovups (%[table]), %%zmm0\n vmovups (%[table]), %%zmm1\n"
      "vmovdqu64 (%[far]), %%zmm19\n kxnorw %%k1, %%k1, %%k1\n vgatherqps (%[table],%%zmm19,4), %%ymm0%{%%k1%}\n vmovups %%ymm0, (%[low])\n"
      "vmovdqu64 (%[near]), %%zmm27\n kxnorw %%k1, %%k1, %%k1\n vgatherdps 4(%[table],%%zmm27,4), %%zmm30%{%%k1%}\n"
      "vmovups %%zmm30, (%[wide])\n kxnorw %%k1, %%k1, %%k1\n vscatterdps %%zmm30, (%[spread],%%zmm27,4)%{%%k1%}\n"
      "vmovups %%zmm1, (%[kept])\n" ::[table] "r"(table),
      [far] "r"(far), [near] "r"(near), [low] "r"(low), [wide] "r"(wide), [kept] "r"(kept), [spread] "r"(spread)
      : "xmm0", "xmm1", "xmm19", "xmm27", "xmm30", "k1", "memory");
  show("low", low);
  show("wide", wide);
  show("kept", kept);
  show("spread", spread + 2);
  return 7;
}
