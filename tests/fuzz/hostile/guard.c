/* Blocks of memory against pages that nobody may touch, filled with a pattern. Preloaded, it gives
 * TVM's runtime its tensors; a host of a standalone library takes memory from it by name.
 * Declared here, so that it is linked without the headers of a C library. */
#include <stddef.h>
#include <stdint.h>

void *mmap(void *, size_t, int, int, int, int64_t);
int mprotect(void *, size_t, int);
int madvise(void *, size_t, int);
void *memset(void *, int, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);

enum { PAGE = 4096, NONE = 0, READ_WRITE = 3, PRIVATE_ANONYMOUS_NORESERVE = 0x4022, DONT_NEED = 4 };
static const size_t REGION = (size_t)1 << 40, MOST = (size_t)1 << 28;

static uint8_t *region; /* of pages that are taken one after the other and never used again */
static uint32_t *pages; /* of the block that begins in each page */
static size_t taken;    /* bytes of the region */
static int at_end, pattern, active;

/* Blocks from here on end (or begin) at a page that is not there, and hold the byte. */
void guard_begin(int end, int byte) {
  if (region == NULL) {
    region = mmap(NULL, REGION, NONE, PRIVATE_ANONYMOUS_NORESERVE, -1, 0);
    pages = mmap(NULL, REGION / PAGE * sizeof *pages, READ_WRITE, PRIVATE_ANONYMOUS_NORESERVE, -1, 0);
  }
  at_end = end;
  pattern = byte;
  active = 1;
}

void guard_end(void) { active = 0; }

/* NULL for a block of more than MOST bytes. */
void *guard_place(size_t bytes, size_t align) {
  size_t held = (bytes + PAGE - 1) / PAGE * PAGE, first;
  uint8_t *block;
  if (bytes > MOST) return NULL;
  if (held == 0) held = PAGE;
  first = __atomic_fetch_add(&taken, held + 2 * PAGE, __ATOMIC_RELAXED) + PAGE;
  if (first + held + PAGE > REGION) return NULL;
  block = region + first;
  if (mprotect(block, held, READ_WRITE) != 0) return NULL;
  memset(block, pattern, held);
  pages[first / PAGE] = (uint32_t)(held / PAGE);
  return at_end ? block + (held - bytes) / align * align : block;
}

void *guard_allocate(void *user, size_t bytes) {
  (void)user;
  return guard_place(bytes, 64);
}

/* What reads or writes the block later touches pages that are not there. */
void guard_release(void *user, void *at) {
  size_t page = ((size_t)((uint8_t *)at - region)) / PAGE, held;
  (void)user;
  while (pages[page] == 0) --page;
  held = (size_t)pages[page] * PAGE;
  pages[page] = 0;
  madvise(region + page * PAGE, held, DONT_NEED);
  mprotect(region + page * PAGE, held, NONE);
}

int posix_memalign(void **at, size_t align, size_t bytes) {
  *at = active ? guard_place(bytes, align) : __libc_memalign(align, bytes);
  return *at == NULL ? 12 : 0;
}

void free(void *at) {
  if (region != NULL && (uint8_t *)at >= region && (uint8_t *)at < region + REGION) guard_release(NULL, at);
  else __libc_free(at);
}
