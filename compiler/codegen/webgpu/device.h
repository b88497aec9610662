/* What drivers of WebGPU use beside support.h. A tensor is the number of a buffer of the page's:
 * its kind, and which of that kind. */
#define RD_BUFFER(kind, i) ((void *)(uintptr_t)((uint32_t)(kind) << 24 | (uint32_t)(i)))
#define RD_NUMBER(buffer) ((int32_t)(uintptr_t)(buffer))
enum { RD_INPUT = 1, RD_SLOT = 2, RD_WEIGHT = 3 };
#define RD_AT(k) RD_BUFFER(RD_SLOT, k)

/* given: the numbers of the shader's buffers, then its own numbers; x, y: blocks of threads along
 * two axes. */
__attribute__((import_module("relaxd"), import_name("launch"))) void rd_launch_grid(
    int32_t shader, const int32_t *given, uint32_t x, uint32_t y);

/* Outputs stay where they are. */
#define rd_deliver(c, results, i, from, bytes) ((c)->out[i] = (from))
