/* Gathers and scatters whose indices lie in one of the upper 16 registers: Bochs 2.7 takes them for invalid. Here they run with a copy
 * of the indices in one of the lower. */
#include "machine.h"

enum { FAR_INDEX = 8, RIGHT_INDEX = 0x40, RIGHT_INDEX_HIGH = 8, SIB = 4, INVALID = 6, JUMP = 0x25ff };

static u8 indices[64] __attribute__((aligned(64)));
static u8 code[64];
static u64 mended;

static u8 *put(u8 *to, const u8 *bytes, u64 size) {
  copy(to, bytes, size);
  return to + size;
}

/* vmovdqu64 between `indices` and zmm`number`, which is below 8. */
static u8 *put_move(u8 *to, u8 opcode, u8 number) {
  u64 place = (u64)indices;
  const u8 bytes[] = {0x62, 0xf1, 0xfe, 0x48, opcode, (u8)(number << 3 | SIB), 0x25, (u8)place, (u8)(place >> 8), (u8)(place >> 16), 0};
  return put(to, bytes, sizeof bytes);
}

/* vmovdqa64 zmm`number`, zmm`from`, of which the latter is one of the upper 16. */
static u8 *put_copy(u8 *to, u8 number, u8 from) {
  const u8 bytes[] = {0x62, (u8)(0x91 | (from & 8 ? 0 : 0x20)), 0xfd, 0x48, 0x6f, (u8)(0xc0 | number << 3 | (from & 7))};
  return put(to, bytes, sizeof bytes);
}

static int is_far(const u8 *at) {
  int vector_addressed = (at[4] & 0xfc) == 0x90 || (at[4] & 0xfc) == 0xa0;
  return at[0] == 0x62 && (at[1] & 7) == 2 && vector_addressed && (at[5] & 7) == SIB && at[5] < 0xc0 && !(at[3] & FAR_INDEX);
}

static u64 size_of(const u8 *at) {
  int base_is_none = at[5] < 0x40 && (at[6] & 7) == 5;
  return 7 + (u64)(at[5] >= 0x80 || base_is_none ? 4 : at[5] >= 0x40);
}

static void rewrite(const u8 *at) {
  u8 other = (u8)(at[5] >> 3 & 7), spare = other == 0, *gather, *to = code;
  u8 from = (u8)((at[6] >> 3 & 7) | (at[1] & RIGHT_INDEX ? 0 : 8));
  u64 size = size_of(at), next = (u64)at + size;
  to = put_copy(put_move(to, 0x7f, spare), spare, from);
  gather = to;
  to = put(to, at, size);
  gather[1] |= RIGHT_INDEX;
  gather[3] |= RIGHT_INDEX_HIGH;
  gather[6] = (u8)((gather[6] & 0xc7) | spare << 3);
  to = put_move(to, 0x6f, spare);
  *(u16 *)to = JUMP;
  *(u32 *)(to + 2) = 0;
  *(u64 *)(to + 6) = next;
}

/* Where to go on instead of an instruction at `place` that the processor takes for invalid; ends the command if it is. */
u64 mend(u64 place) {
  const u64 frame[] = {INVALID, 0, place};
  const u8 *at = (const u8 *)place;
  if (!is_far(at)) fault(frame);
  if (mended != place) rewrite(at);
  mended = place;
  return (u64)code;
}

void forget_mended(void) { mended = 0; }
