/* A model written by hand with the C interface of a standalone library:
 * y[n,3] = x[n,3] * weights[3], and kept[m]: the values of x that are positive.
 * x of 1000 fails as a kernel, x of 2000 as a check; dims below 1, above 65536 and odd n are refused.
 */
typedef __INT64_TYPE__ int64_t;
typedef __SIZE_TYPE__ size_t;

enum { OK, DIM, CHECK, MEMORY, KERNEL };
enum { WIDTH = 3, LARGEST = 65536 };

typedef struct { const char *name; int64_t min, max, multiple; } dim;
typedef struct { const char *name, *dtype; int item, rank; const char *const *axes; } tensor;
typedef struct {
  const char *name;
  int inputs, outputs, dims, parallel;
  const tensor *input, *output;
  const dim *dim;
  int64_t weights;
} interface;

typedef struct { const float *weights; float *arena; const char *failure; int64_t n, y[2], kept[1]; } context;

static const char *const of_x[] = {"2*n", "3"}, *const of_kept[] = {"m"};
static const tensor inputs[] = {{"x", "float32", 4, 2, of_x}, {"bias", "int64", 8, 0, 0}};
static const tensor outputs[] = {{"y", "float32", 4, 2, of_x}, {"kept", "float32", 4, 1, of_kept}};
static const dim dims[] = {{"n", 1, LARGEST, 1}};
static const interface table = {"byhand", 2, 2, 1, 0, inputs, outputs, dims, WIDTH * 4};

/* Blocks of one size class each, so that what is given back is taken again. */
typedef struct block { struct block *next; size_t bytes; char fill[64 - 2 * sizeof(size_t)]; } block;
extern char __heap_base;
static size_t top;
static block *spare;

#define EXPORT(name) __attribute__((export_name("relaxd_byhand_" #name)))

EXPORT(allocate) void *allocate(size_t bytes) {
  bytes = (bytes + 63) / 64 * 64;
  for (block **at = &spare; *at; at = &(*at)->next)
    if ((*at)->bytes >= bytes) {
      block *found = *at;
      *at = found->next;
      return found + 1;
    }
  if (!top) top = ((size_t)&__heap_base + 63) / 64 * 64;
  size_t end = top + sizeof(block) + bytes, room = __builtin_wasm_memory_size(0) << 16;
  if (end < top) return 0;
  if (end > room && __builtin_wasm_memory_grow(0, ((end - room) >> 16) + 1) == (size_t)-1) return 0;
  block *made = (block *)top;
  made->bytes = bytes;
  top = end;
  return made + 1;
}

EXPORT(release) void release(void *at) {
  if (!at) return;
  block *given = (block *)at - 1;
  given->next = spare;
  spare = given;
}

EXPORT(size) size_t size(void) { return sizeof(context); }
EXPORT(interface) const interface *the_interface(void) { return &table; }
EXPORT(failure) const char *failure(const context *c) { return c->failure; }
EXPORT(close) void close(context *c) { c->n = 0; }

EXPORT(open) int open(context *c, const void *weights, const void *host) {
  *c = (context){.weights = weights, .failure = ""};
  return weights ? OK : (c->failure = "there are no weights", MEMORY);
}

EXPORT(bind) int64_t bind(context *c, const int64_t *given) {
  if (*given < 1 || *given > LARGEST) return c->failure = "n must be 1 to 65536", -DIM;
  c->n = 2 * *given, c->y[0] = c->n, c->y[1] = WIDTH, c->kept[0] = -1;
  return 2 * c->n * WIDTH * (int64_t)sizeof(float);
}

EXPORT(arena) int arena(context *c, void *at) { return c->arena = at, OK; }

EXPORT(run) int run(context *c, const void *const *in, void *const *out) {
  const float *x = in[0], bias = (float)*(const int64_t *)in[1];
  float *y = c->arena, *kept = y + c->n * WIDTH;
  if (x[0] == 1000) return c->failure = "kernel 'byhand' failed", KERNEL;
  if (x[0] == 2000) return c->failure = "extents differ", CHECK;
  if (x[0] == 3000) release(allocate(1 << 22)); /* grows the memory in the middle of a run */
  c->kept[0] = 0;
  for (int64_t i = 0; i < c->n * WIDTH; ++i) {
    y[i] = x[i] * c->weights[i % WIDTH] + bias;
    if (x[i] > 0) kept[c->kept[0]++] = x[i];
  }
  return OK;
}

EXPORT(shape) const int64_t *shape(const context *c, int output) { return output ? c->kept : c->y; }
EXPORT(output) const void *output(const context *c, int output) { return output ? c->arena + c->n * WIDTH : c->arena; }
