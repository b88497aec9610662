/* Prints the processor's features beyond x86-64-v3, as Linux spells them. */
#include <cpuid.h>
#include <stdio.h>

enum { EBX, ECX };

static const struct {
  unsigned leaf, word, bit;
  const char *name;
} known[] = {
    {7, EBX, 16, "avx512f"},          {7, EBX, 17, "avx512dq"},    {7, EBX, 19, "adx"},
    {7, EBX, 21, "avx512ifma"},       {7, EBX, 28, "avx512cd"},    {7, EBX, 29, "sha_ni"},
    {7, EBX, 30, "avx512bw"},         {7, EBX, 31, "avx512vl"},    {7, ECX, 1, "avx512vbmi"},
    {7, ECX, 6, "avx512_vbmi2"},      {7, ECX, 8, "gfni"},         {7, ECX, 9, "vaes"},
    {7, ECX, 10, "vpclmulqdq"},       {7, ECX, 11, "avx512_vnni"}, {7, ECX, 12, "avx512_bitalg"},
    {7, ECX, 14, "avx512_vpopcntdq"}, {1, ECX, 1, "pclmulqdq"},    {1, ECX, 25, "aes"},
};

int main(void) {
  for (unsigned index = 0; index < sizeof known / sizeof *known; ++index) {
    unsigned eax, words[2], edx;
    if (!__get_cpuid_count(known[index].leaf, 0, &eax, &words[EBX], &words[ECX], &edx)) return 1;
    if (words[known[index].word] >> known[index].bit & 1) printf("%s\n", known[index].name);
  }
  return 0;
}
