/* Which pages of memory are in use: a program's from the bottom, contents of files from the top. */
#include "kernel.h"

enum { MAP = 0x100000, FIRST = 0x800000 };

static u8 *const used = (u8 *)MAP;
static u64 end;

void prepare_pages(u64 memory) {
  end = memory;
  clear(used, memory / PAGE);
}

static u64 count_pages(u64 bytes) { return (bytes + PAGE - 1) / PAGE; }

static int is_inside(u64 page) { return page < end / PAGE; }

void mark_used(u64 begin, u64 bytes) {
  for (u64 page = begin / PAGE; page < count_pages(begin + bytes) && is_inside(page); ++page)
    used[page] = 1;
}

void free_pages(u64 begin, u64 bytes) {
  for (u64 page = begin / PAGE; page < count_pages(begin + bytes) && is_inside(page); ++page)
    used[page] = 0;
}

/* Consecutive pages of zeros; NULL where there are not that many. */
u8 *allocate_pages(u64 bytes) {
  u64 wanted = count_pages(bytes), free = 0;
  for (u64 page = FIRST / PAGE; is_inside(page); ++page) {
    free = used[page] ? 0 : free + 1;
    if (free < wanted) continue;
    u8 *memory = (u8 *)((page + 1 - wanted) * PAGE);
    mark_used((u64)memory, bytes);
    clear(memory, wanted * PAGE);
    return memory;
  }
  return 0;
}

/* The last pages, which are never free again; NULL where one of them is in use. */
u8 *allocate_at_end(u64 bytes) {
  u64 wanted = count_pages(bytes), last = end / PAGE;
  if (wanted > last - FIRST / PAGE) return 0;
  for (u64 page = last - wanted; page < last; ++page)
    if (used[page]) return 0;
  end -= wanted * PAGE;
  return (u8 *)end;
}
