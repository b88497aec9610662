/* What every driver uses: extents, failures, memory that only a run can size, threads. It is part
 * of the driver's source file. */
/* Declared here: zig has headers of no C library for phones. */
void *memmove(void *, const void *, size_t);
void *memset(void *, int, size_t);
#if defined(RD_LIBC) && defined(_WIN32)
void *_aligned_malloc(size_t, size_t);
void _aligned_free(void *);
#elif defined(RD_LIBC)
int posix_memalign(void **, size_t, size_t);
void free(void *);
#endif

/* The rule for extents: every dim that bind takes is RD_MOST_EXTENT at most, every tensor has
 * extents of 0 and more and takes RD_MOST_BYTES at most. Sums and products that may break it are
 * checked where they are made, and end the call. */
#define RD_MOST_EXTENT (INT64_C(1) << 40)
#define RD_MOST_BYTES (sizeof(size_t) > 4 ? INT64_C(1) << 47 : (int64_t)(SIZE_MAX / 2))

#define RD_CHECKED(operation, a, b) \
  ({ \
    int64_t rd_result_; \
    if (operation((a), (b), &rd_result_)) return rd_wraps(&c->own); \
    rd_result_; \
  })
#define RD_ADD(a, b) RD_CHECKED(rd_add, a, b)
#define RD_SUB(a, b) RD_CHECKED(rd_sub, a, b)
#define RD_MUL(a, b) RD_CHECKED(rd_mul, a, b)
/* Bytes of a tensor of so many elements of `item` bytes; its extents follow. */
#define RD_SIZE(item, rank, ...) \
  ({ \
    int64_t rd_size_ = rd_size((__VA_ARGS__), rank, item); \
    if (rd_size_ < 0) return rd_too_large(&c->own); \
    rd_size_; \
  })

#define RD_LINE 64
#define RD_ROUND(bytes) (((bytes) + (RD_LINE - 1)) / RD_LINE * RD_LINE)
#define RD_UNUSED __attribute__((unused))

/* A call of a kernel. Where a context may be watched, a call costs one branch more while it is not:
 * whether the kernel failed and whether its end is reported are tested together. */
#if defined(RD_WATCH)
#define RD_RARELY(condition) __builtin_expect((condition) != 0, 0)
#define RD_CALL(name, call) \
  do { \
    if (RD_RARELY(c->own.watched)) rd_begins(&c->own, name); \
    int failed = call; \
    if (RD_RARELY(failed | c->own.watched)) { \
      failed = rd_ends(&c->own, failed); \
      if (failed) return failed; \
    } \
  } while (0)
#else
#define RD_CALL(name, call) \
  if (call) return rd_fail(&c->own, RELAXD_KERNEL, "a thread failed")
#endif

typedef struct {
  void *data;
  int64_t shape[RD_RANK];
} rd_value;

/* Memory from the host, in front of what it holds. */
typedef struct rd_block {
  struct rd_block *next;
  int64_t room;
} rd_block;

/* A place in memory that grows: for tensors whose extents only a run knows. */
typedef struct {
  void *data;
  int64_t room;
} rd_growing;

typedef struct {
#if defined(RD_WATCH)
  int watched; /* whether `watch` is there; in front, where code reads it by a short instruction */
#endif
  const uint8_t *weights;
  relaxd_host host;
  uint8_t *arena, *scratch;
  int64_t need;    /* bytes of arena */
  int64_t tail;    /* where its working memory starts */
  int64_t each;    /* bytes of working memory a thread */
  int64_t widened; /* the same, where `wide` holds it */
  rd_growing wide;
  rd_block *used, *spare;
  int bound, placed;
  const char *failure;
  const char *node; /* whose extents are computed, where that is known */
#if defined(RD_WATCH)
  void (*watch)(void *user, const char *kernel, int begins);
  void *watcher;
  const char *kernel; /* that runs, of a context that is watched */
#endif
  char text[160];
} rd_context;

static inline RD_UNUSED int64_t rd_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline RD_UNUSED int64_t rd_max(int64_t a, int64_t b) { return a > b ? a : b; }
/* No division traps: by 0 it gives 0, and leaves 0; what divides by 0 is refused elsewhere. */
static inline RD_UNUSED int64_t rd_truncdiv(int64_t a, int64_t b) {
  if (b == 0) return 0;
  return b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}
static inline RD_UNUSED int64_t rd_truncmod(int64_t a, int64_t b) {
  return b == 0 || b == -1 ? 0 : a % b;
}
static inline RD_UNUSED int64_t rd_floordiv(int64_t a, int64_t b) {
  return rd_truncdiv(a, b) - (rd_truncmod(a, b) != 0 && (a < 0) != (b < 0));
}
static inline RD_UNUSED int64_t rd_floormod(int64_t a, int64_t b) {
  int64_t rest = rd_truncmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

/* Whether the result needs more than 64 bits. */
static inline RD_UNUSED int rd_add(int64_t a, int64_t b, int64_t *sum) {
  return __builtin_add_overflow(a, b, sum);
}
static inline RD_UNUSED int rd_sub(int64_t a, int64_t b, int64_t *difference) {
  return __builtin_sub_overflow(a, b, difference);
}
static inline RD_UNUSED int rd_mul(int64_t a, int64_t b, int64_t *product) {
#if defined(__SIZEOF_INT128__)
  return __builtin_mul_overflow(a, b, product);
#else
  /* By halves: compilers call a function of their library for the whole. */
  uint64_t x = a < 0 ? 0 - (uint64_t)a : (uint64_t)a, y = b < 0 ? 0 - (uint64_t)b : (uint64_t)b;
  uint64_t high = (x >> 32) != 0 ? (x >> 32) * y : (y >> 32) * x,
           low = (uint32_t)x * (y & UINT32_MAX);
  uint64_t all = low + (high << 32);
  if (((x >> 32) != 0 && (y >> 32) != 0) || (high >> 32) != 0 || all < low || all > INT64_MAX)
    return 1;
  *product = (a < 0) != (b < 0) ? -(int64_t)all : (int64_t)all;
  return 0;
#endif
}

/* Bytes of a tensor; -1 where its extents break the rule, whatever others are 0. */
static RD_UNUSED int64_t rd_size(const int64_t *shape, int rank, int item) {
  int64_t size = item, least = item;
  for (int i = 0; i < rank; ++i) {
    if (shape[i] < 0 || shape[i] > RD_MOST_BYTES || rd_mul(size, shape[i], &size) ||
        rd_mul(least, shape[i] == 0 ? 1 : shape[i], &least) || least > RD_MOST_BYTES)
      return -1;
  }
  return size;
}

static char *rd_put(char *at, const char *end, const char *text) {
  while (*text != 0 && at < end) *at++ = *text++;
  return at;
}

static char *rd_number(char *at, const char *end, int64_t value) {
  char digits[21];
  char *first = digits + 20;
  uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
  *first = 0;
  do *--first = (char)('0' + rest % 10);
  while ((rest /= 10) != 0);
  if (value < 0) *--first = '-';
  return rd_put(at, end, first);
}

static RD_UNUSED int rd_fail(rd_context *c, int status, const char *why) {
  c->failure = why;
  return status;
}

/* The sentence behind the name of the node, where one is known. */
static RD_UNUSED __attribute__((cold, noinline)) int rd_fail_at(rd_context *c, int status,
                                                                const char *why) {
  const char *end = c->text + sizeof c->text - 1;
  char *at = c->text;
  if (c->node == NULL) return rd_fail(c, status, why);
  at = rd_put(rd_put(at, end, c->node), end, ": ");
  *rd_put(at, end, why) = 0;
  return rd_fail(c, status, c->text);
}

static RD_UNUSED __attribute__((cold, noinline)) int rd_wraps(rd_context *c) {
  return rd_fail_at(c, RELAXD_CHECK, "an extent that the model computes needs more than 64 bits");
}

static RD_UNUSED __attribute__((cold, noinline)) int rd_too_large(rd_context *c) {
  return rd_fail_at(c, RELAXD_MEMORY,
                    "a tensor has a negative extent, or takes more memory than there can be");
}

#if defined(RD_WATCH)
static RD_UNUSED __attribute__((cold, noinline)) void rd_begins(rd_context *c, const char *kernel) {
  c->kernel = kernel;
  c->watch(c->watcher, kernel, 1);
}

static RD_UNUSED __attribute__((cold, noinline)) int rd_ends(rd_context *c, int failed) {
  if (c->watched) c->watch(c->watcher, c->kernel, 0);
  return failed ? rd_fail(c, RELAXD_KERNEL, "a thread failed") : RELAXD_OK;
}
#endif

/* `before` found `between` wanted `after` */
static RD_UNUSED int rd_differs(rd_context *c, const char *before, int64_t found,
                                const char *between, int64_t wanted, const char *after) {
  const char *end = c->text + sizeof c->text - 1;
  char *at = rd_number(rd_put(c->text, end, before), end, found);
  *rd_put(rd_number(rd_put(at, end, between), end, wanted), end, after) = 0;
  return rd_fail(c, RELAXD_CHECK, c->text);
}

static RD_UNUSED int rd_check_dim(rd_context *c, const relaxd_dim *dim, int64_t value) {
  const char *end = c->text + sizeof c->text - 1;
  char *at = c->text;
  int64_t most = rd_min(dim->max, RD_MOST_EXTENT);
  if (value >= dim->min && value <= most && value % dim->multiple == 0) return RELAXD_OK;
  at = rd_number(rd_put(rd_put(at, end, dim->name), end, " = "), end, value);
  at = rd_number(rd_put(at, end, ", it must be "), end, dim->min);
  if (dim->max == INT64_MAX && value <= most) at = rd_put(at, end, " to any");
  else if (most != dim->min) at = rd_number(rd_put(at, end, " to "), end, most);
  if (dim->multiple != 1) at = rd_number(rd_put(at, end, ", a multiple of "), end, dim->multiple);
  *at = 0;
  return rd_fail(c, RELAXD_DIM, c->text);
}

static int rd_no_memory(rd_context *c) {
  return rd_fail(c, RELAXD_MEMORY,
                 c->host.allocate ? "there is no memory left"
                                  : "extents that only a run knows need the host's allocate");
}

static void *rd_allocate(rd_context *c, int64_t bytes) {
  if (c->host.allocate == NULL || bytes < 0 || (uint64_t)bytes > SIZE_MAX / 2) return NULL;
  return c->host.allocate(c->host.user, (size_t)bytes);
}

/* At least so many bytes at this place; what was there is lost. */
static RD_UNUSED int rd_grow(rd_context *c, rd_growing *place, int64_t bytes) {
  if (bytes < 0 || bytes > RD_MOST_BYTES) return rd_too_large(c);
  if (place->data != NULL && place->room >= bytes) return RELAXD_OK;
  if (place->data != NULL) c->host.release(c->host.user, place->data);
  place->data = rd_allocate(c, RD_ROUND(bytes) + RD_LINE);
  place->room = place->data == NULL ? 0 : RD_ROUND(bytes) + RD_LINE;
  return place->data == NULL ? rd_no_memory(c) : RELAXD_OK;
}

/* Memory that lives until the function or the iteration that asked for it ends, or, where its
 * result lies in it, with that. */
static RD_UNUSED void *rd_take(rd_context *c, int64_t bytes) {
  int64_t room = RD_ROUND(bytes) + RD_LINE;
  rd_block *block, **at;
  if (bytes < 0 || bytes > RD_MOST_BYTES) {
    rd_too_large(c);
    return NULL;
  }
  for (at = &c->spare; (block = *at) != NULL; at = &block->next)
    if (block->room >= room && block->room / 4 <= room) break;
  if (block != NULL) {
    *at = block->next;
  } else {
    block = rd_allocate(c, room + RD_LINE);
    if (block == NULL) {
      rd_no_memory(c);
      return NULL;
    }
    block->room = room;
  }
  block->next = c->used;
  c->used = block;
  return (uint8_t *)block + RD_LINE;
}

/* Takes back what was asked for since `mark`, but for what holds one of the values. */
static RD_UNUSED void rd_sweep(rd_context *c, rd_block *mark, const rd_value *kept, int count) {
  rd_block *block, **at = &c->used;
  while ((block = *at) != mark) {
    uint8_t *first = (uint8_t *)block + RD_LINE;
    int i = 0;
    while (i < count &&
           !((uint8_t *)kept[i].data >= first && (uint8_t *)kept[i].data < first + block->room))
      ++i;
    if (i < count) {
      at = &block->next;
      continue;
    }
    *at = block->next;
    block->next = c->spare;
    c->spare = block;
  }
}

static void rd_release_all(rd_context *c) {
  rd_block *block;
  rd_sweep(c, NULL, NULL, 0);
  while ((block = c->spare) != NULL) {
    c->spare = block->next;
    c->host.release(c->host.user, block);
  }
}

static inline RD_UNUSED void *rd_scratch(const rd_context *c, int slot) {
  if (c->widened > c->each) return (uint8_t *)c->wide.data + slot * c->widened;
  return c->scratch + slot * c->each;
}

static inline RD_UNUSED int rd_threads(const rd_context *c) {
  return c->host.parallel != NULL && c->host.threads > 1 ? c->host.threads : 1;
}

/* Working memory of a kernel whose extents bind did not know. */
static RD_UNUSED int rd_widen(rd_context *c, int64_t bytes) {
  if (bytes <= c->each || bytes <= c->widened) return RELAXD_OK;
  if (bytes > RD_MOST_BYTES / rd_threads(c)) return rd_too_large(c);
  c->widened = RD_ROUND(bytes);
  return rd_grow(c, &c->wide, c->widened * rd_threads(c));
}

#if defined(RD_THREADS)
enum { RD_SHARES = 256 };
/* One copy for all loops of a library. */
#define RD_NOINLINE __attribute__((noinline))
/* clang calls functions of its own library for atomics on Android, which not every NDK links. */
#if defined(__ANDROID__) && defined(__aarch64__)
#define RD_INLINE_ATOMICS __attribute__((target("no-outline-atomics")))
#else
#define RD_INLINE_ATOMICS
#endif
/* A loop that threads share: how many tasks it has, how many threads, and a flag for each share
 * that was claimed and one for all of them, zero at first. */
typedef struct {
  int64_t total;
  int threads;
  int32_t taken[RD_SHARES + 1];
} rd_shares;
/* Claims a share of the tasks, from the thread's own on: 1, and the share's first task and its end,
 * or 0. step: how many shares the thread has passed, zero at first. */
static RD_INLINE_ATOMICS RD_NOINLINE int rd_claim(rd_shares *own, int thread, int64_t *step,
                                                  int64_t *first, int64_t *end) {
  int64_t shares = rd_min(own->total, RD_SHARES), home = thread * shares / own->threads;
  int32_t *taken = own->taken;
  if (__atomic_load_n(&taken[RD_SHARES], __ATOMIC_RELAXED) != 0) return 0;
  while (*step < shares) {
    int64_t ahead = home + (*step)++, share = ahead - (ahead >= shares ? shares : 0);
    if (__atomic_load_n(&taken[share], __ATOMIC_RELAXED) != 0 ||
        __atomic_exchange_n(&taken[share], 1, __ATOMIC_RELAXED) != 0)
      continue;
    *first = share * own->total / shares;
    *end = (share + 1) * own->total / shares;
    return 1;
  }
  __atomic_store_n(&taken[RD_SHARES], 1, __ATOMIC_RELAXED);
  return 0;
}
#endif

#if defined(RD_LIBC)
static void *rd_libc_allocate(void *user, size_t bytes) {
  void *at = NULL;
  (void)user;
#if defined(_WIN32)
  at = _aligned_malloc(bytes, RD_LINE);
#else
  if (posix_memalign(&at, RD_LINE, bytes) != 0) at = NULL;
#endif
  return at;
}
static void rd_libc_release(void *user, void *at) {
  (void)user;
#if defined(_WIN32)
  _aligned_free(at);
#else
  free(at);
#endif
}
#endif

#if defined(RD_GROWS)
/* Memory of a WebAssembly module behind its own data: blocks in the order of their addresses, each
 * with its size before it. */
typedef struct rd_free {
  struct rd_free *next;
  size_t bytes; /* of the block, this included */
} rd_free;
extern unsigned char __heap_base;
static rd_free *rd_frees;
static size_t rd_top;

static void rd_give(rd_free *block) {
  rd_free **at = &rd_frees;
  while (*at != NULL && *at < block) at = &(*at)->next;
  block->next = *at;
  if (*at != NULL && (uint8_t *)block + block->bytes == (uint8_t *)*at) {
    block->bytes += (*at)->bytes;
    block->next = (*at)->next;
  }
  *at = block;
  if (at != &rd_frees) {
    rd_free *before = (rd_free *)((uint8_t *)at - offsetof(rd_free, next));
    if ((uint8_t *)before + before->bytes == (uint8_t *)block) {
      before->bytes += block->bytes;
      before->next = block->next;
    }
  }
}

static int rd_more(size_t bytes) {
  size_t end = (size_t)__builtin_wasm_memory_size(0) << 16;
  rd_free *block;
  if (rd_top == 0) rd_top = RD_ROUND((size_t)&__heap_base);
  if (bytes > SIZE_MAX - rd_top) return 0;
  if (rd_top + bytes > end) {
    size_t pages = (rd_top + bytes - end + 65535) >> 16;
    if (__builtin_wasm_memory_grow(0, pages) == SIZE_MAX) return 0;
    end += pages << 16;
  }
  block = (rd_free *)rd_top;
  block->bytes = (end - rd_top) / RD_LINE * RD_LINE;
  rd_top += block->bytes;
  rd_give(block);
  return 1;
}

static void *rd_grows_allocate(void *user, size_t bytes) {
  size_t need = RD_ROUND(bytes) + RD_LINE;
  (void)user;
  if (need < bytes) return NULL;
  for (int again = 0; again < 2; ++again) {
    for (rd_free **at = &rd_frees; *at != NULL; at = &(*at)->next) {
      rd_free *block = *at;
      if (block->bytes < need) continue;
      if (block->bytes - need >= 2 * RD_LINE) {
        rd_free *rest = (rd_free *)((uint8_t *)block + need);
        rest->bytes = block->bytes - need;
        rest->next = block->next;
        block->bytes = need;
        *at = rest;
      } else {
        *at = block->next;
      }
      return (uint8_t *)block + RD_LINE;
    }
    if (!rd_more(need)) return NULL;
  }
  return NULL;
}
static void rd_grows_release(void *user, void *at) {
  (void)user;
  if (at != NULL) rd_give((rd_free *)((uint8_t *)at - RD_LINE));
}
#endif

static RD_UNUSED int rd_open(rd_context *c, size_t size, const void *weights,
                             const relaxd_host *host) {
  memset(c, 0, size);
  c->weights = weights;
  c->failure = "";
#if defined(RD_LIBC)
  c->host.allocate = rd_libc_allocate;
  c->host.release = rd_libc_release;
#endif
#if defined(RD_GROWS)
  c->host.allocate = rd_grows_allocate;
  c->host.release = rd_grows_release;
#endif
#if defined(RD_TEAM)
  c->host.parallel = rd_parallel;
  c->host.threads = rd_helpers + 1;
#endif
  if (host != NULL) {
    relaxd_host own = c->host;
    c->host = *host;
    if (host->allocate == NULL) {
      c->host.allocate = own.allocate;
      c->host.release = own.release;
    }
  }
  return RELAXD_OK;
}
