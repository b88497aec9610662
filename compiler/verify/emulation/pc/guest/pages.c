/* Which pages of memory are taken: programs' from the bottom, files' contents from the top. */
#include "kernel.h"

enum { MAP = 0x100000, FIRST = 0x400000 };

static u8 *const taken = (u8 *)MAP;
static u64 end;

/* All memory below `limit` is free again, and files' contents will lie from there down. */
void forget_pages(u64 limit) {
  if (end == 0) end = limit;
  clear(taken, limit / PAGE);
}

static u64 pages(u64 bytes) { return (bytes + PAGE - 1) / PAGE; }

void claim_pages(u64 begin, u64 bytes) {
  for (u64 page = begin / PAGE; page < pages(begin + bytes); ++page) taken[page] = 1;
}

void give_pages(u64 begin, u64 bytes) {
  for (u64 page = begin / PAGE; page < pages(begin + bytes) && page < end / PAGE; ++page) taken[page] = 0;
}

/* Pages in a row, with zeros; NULL where there are not that many. */
u8 *take_pages(u64 bytes) {
  u64 wanted = pages(bytes), run = 0;
  for (u64 page = FIRST / PAGE; page < end / PAGE; ++page) {
    run = taken[page] ? 0 : run + 1;
    if (run < wanted) continue;
    u8 *found = (u8 *)((page + 1 - wanted) * PAGE);
    claim_pages((u64)found, bytes);
    clear(found, wanted * PAGE);
    return found;
  }
  return 0;
}

u8 *take_for_good(u64 bytes) {
  end -= pages(bytes) * PAGE;
  return (u8 *)end;
}
