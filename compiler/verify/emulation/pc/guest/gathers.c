/* Gathers and scatters whose indices lie in one of the upper 16 registers: Bochs 2.7 refuses them
 * as invalid. They run with a copy of the indices in a lower register. */
#include "pc.h"

enum { LOWER = 8, LOWER_8 = 0x40, SIB = 4, INVALID_OPCODE = 6, JUMP = 0x25ff };

static u8 saved[64] __attribute__((aligned(64)));
static u8 code[64];
static u64 substituted;

static u8 *put(u8 *to, const u8 *bytes, u64 size) {
  copy(to, bytes, size);
  return to + size;
}

/* vmovdqu64 between `saved` and zmm`number`, which is below 8. */
static u8 *put_move(u8 *to, u8 opcode, u8 number) {
  u64 address = (u64)saved;
  const u8 bytes[] = {0x62,
                      0xf1,
                      0xfe,
                      0x48,
                      opcode,
                      (u8)(number << 3 | SIB),
                      0x25,
                      (u8)address,
                      (u8)(address >> 8),
                      (u8)(address >> 16),
                      0};
  return put(to, bytes, sizeof bytes);
}

/* vmovdqa64 zmm`number`, zmm`from`, which is one of the upper 16. */
static u8 *put_copy(u8 *to, u8 number, u8 from) {
  const u8 extension = (u8)(0x91 | (from & 8 ? 0 : 0x20));
  const u8 bytes[] = {0x62, extension, 0xfd, 0x48, 0x6f, (u8)(0xc0 | number << 3 | (from & 7))};
  return put(to, bytes, sizeof bytes);
}

static int has_upper_indices(const u8 *at) {
  int vector_addressed = (at[4] & 0xfc) == 0x90 || (at[4] & 0xfc) == 0xa0;
  int in_memory = (at[5] & 7) == SIB && at[5] < 0xc0;
  return at[0] == 0x62 && (at[1] & 7) == 2 && vector_addressed && in_memory && !(at[3] & LOWER);
}

static u64 size_of(const u8 *at) {
  int has_no_base = at[5] < 0x40 && (at[6] & 7) == 5;
  return 7 + (u64)(at[5] >= 0x80 || has_no_base ? 4 : at[5] >= 0x40);
}

/* Writes the instructions that do the work of that one and go on behind it. */
static void substitute(const u8 *at) {
  u8 operand = (u8)(at[5] >> 3 & 7), spare = operand == 0, *gather, *to = code;
  u8 indices = (u8)((at[6] >> 3 & 7) | (at[1] & LOWER_8 ? 0 : 8));
  u64 size = size_of(at), next = (u64)at + size;
  to = put_copy(put_move(to, 0x7f, spare), spare, indices);
  gather = to;
  to = put(to, at, size);
  gather[1] |= LOWER_8;
  gather[3] |= LOWER;
  gather[6] = (u8)((gather[6] & 0xc7) | spare << 3);
  to = put_move(to, 0x6f, spare);
  *(u16 *)to = JUMP;
  *(u32 *)(to + 2) = 0;
  *(u64 *)(to + 6) = next;
}

/* Where to go on instead of the instruction at `address`, which the processor refuses; ends the
 * program if it is none of those. */
u64 find_substitute(u64 address) {
  const u64 frame[] = {INVALID_OPCODE, 0, address};
  const u8 *at = (const u8 *)address;
  if (!has_upper_indices(at)) end_by_exception(frame);
  if (substituted != address) substitute(at);
  substituted = address;
  return (u64)code;
}
