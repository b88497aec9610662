/* The parts of CUDA's driver and runtime that TVM calls, for one device of compute capability 9.0 that is the processor.

   Device memory is the process's own, but its addresses are shifted: the host cannot read it, kernels get the true
   addresses, and what no allocation holds is refused. Work is done when it is asked for, or recorded while a stream is
   captured. Calls come from one thread at a time. Errors are explained on standard error. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "threads.h"

enum { MAJOR = 9, MINOR = 0, VERSION = 13000, SHARED = 48 << 10, GRANULE = 256, PAGE = 4096, POISON = 0xFF };
enum { OK = 0, INVALID = 1, NO_BINARY = 209, NOT_FOUND = 500, LAUNCH_FAILED = 719, UNSUPPORTED = 801 };
enum { CAPTURE_UNSUPPORTED = 900, CAPTURE_IMPLICIT = 906 };
enum { TO_DEVICE = 1, TO_HOST = 2, ON_DEVICE = 3 };

#define SHIFT (UINT64_C(1) << 62)
#define SAY(...) (fprintf(stderr, "CUDA emulator: " __VA_ARGS__), fputc('\n', stderr))

typedef struct allocation {
  struct allocation *next;
  char *start, *mapping;
  size_t size, mapped;
} allocation;

typedef struct {
  int file;
  void *library;
  struct context *context;
} module;

typedef struct {
  const struct kernel *kernel;
  module *module;
} function;

typedef struct {
  unsigned grid[3], block[3], shared;
  void *stream, *attributes;
  unsigned attribute_count;
} configuration;

typedef struct node {
  struct node *next;
  const struct kernel *kernel;
  module *module;
  struct triple grid, block;
  uint64_t *arguments;
} node;

typedef struct {
  node *first, **end;
} graph;

typedef struct {
  int blocking;
  graph *captured;
} stream;

static allocation *allocations;
static stream *capturing;
static int last_error;
static unsigned long launches, replays;

static int failed(int error) { return last_error = error; }

/* ---- memory ---- */

static size_t rounded(size_t size, size_t unit) { return (size + unit - 1) / unit * unit; }

/* The true address of `size` bytes of device memory, NULL where no allocation holds them all. */
static char *device_bytes(uint64_t address, size_t size) {
  for (allocation *at = allocations; at; at = at->next) {
    uint64_t offset = address - SHIFT - (uintptr_t)at->start;
    if (offset <= at->size && size <= at->size - offset) return at->start + offset;
  }
  SAY("%zu bytes at %#lx are no device memory", size, (unsigned long)address);
  return NULL;
}

int cudaMalloc(void **pointer, size_t size) {
  if (capturing) return SAY("memory is allocated while a stream is captured"), failed(CAPTURE_UNSUPPORTED);
  allocation *made = calloc(1, sizeof *made);
  made->size = rounded(size, GRANULE);
  made->mapped = rounded(made->size, PAGE) + PAGE;
  made->mapping = mmap(NULL, made->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made->mapping == MAP_FAILED) return free(made), failed(2);
  /* It ends where the pages end that may be touched. */
  mprotect(made->mapping + made->mapped - PAGE, PAGE, PROT_NONE);
  made->start = made->mapping + made->mapped - PAGE - made->size;
  memset(made->start, POISON, made->size);
  made->next = allocations;
  allocations = made;
  *pointer = (void *)((uintptr_t)made->start + SHIFT);
  return OK;
}

int cudaFree(void *pointer) {
  if (pointer == NULL) return OK;
  if (capturing) return SAY("memory is freed while a stream is captured"), failed(CAPTURE_UNSUPPORTED);
  for (allocation **at = &allocations; *at; at = &(*at)->next) {
    allocation *found = *at;
    if ((uintptr_t)found->start + SHIFT != (uintptr_t)pointer) continue;
    *at = found->next;
    munmap(found->mapping, found->mapped);
    free(found);
    return OK;
  }
  return SAY("%p is freed and was not allocated", pointer), failed(INVALID);
}

int cudaMallocHost(void **pointer, size_t size) { return (*pointer = malloc(size)) ? OK : failed(2); }
int cudaFreeHost(void *pointer) { return free(pointer), OK; }
int cudaMemGetInfo(size_t *unused, size_t *total) { return *unused = *total = (size_t)8 << 30, OK; }

/* ---- streams and graphs ---- */

/* Whether the stream may be given work now: nothing may use the default stream while a blocking stream is captured. */
static int admitted(stream *at) {
  if (capturing && at == NULL && capturing->blocking) {
    SAY("the default stream is given work while a stream is captured");
    return failed(CAPTURE_IMPLICIT);
  }
  return OK;
}

int cudaStreamCreate(stream **made) { return *made = calloc(1, sizeof **made), (*made)->blocking = 1, OK; }
int cudaStreamCreateWithFlags(stream **made, unsigned flags) { return cudaStreamCreate(made), (*made)->blocking = !flags, OK; }
int cudaStreamDestroy(stream *at) { return free(at), OK; }

int cudaStreamSynchronize(stream *at) {
  if (!capturing) return OK;
  return SAY("stream %p is waited for while a stream is captured", (void *)at), failed(CAPTURE_UNSUPPORTED);
}

int cudaStreamWaitEvent(stream *at, void *event, unsigned flags) { return (void)at, (void)event, (void)flags, OK; }

int cudaStreamBeginCapture(stream *at, int mode) {
  (void)mode;
  if (at == NULL || capturing) return SAY("the default stream cannot be captured, nor two at once"), failed(CAPTURE_UNSUPPORTED);
  capturing = at;
  at->captured = calloc(1, sizeof(graph));
  at->captured->end = &at->captured->first;
  return OK;
}

int cudaStreamEndCapture(stream *at, graph **made) {
  if (at != capturing) return failed(INVALID);
  *made = at->captured;
  capturing = NULL;
  return OK;
}

static node *copied(const node *from) {
  node *made = malloc(sizeof *made);
  *made = *from;
  made->next = NULL;
  made->arguments = calloc(from->kernel->count + 1, sizeof *made->arguments);
  memcpy(made->arguments, from->arguments, from->kernel->count * sizeof *made->arguments);
  return made;
}

int cudaGraphInstantiate(graph **made, const graph *from, unsigned long long flags) {
  (void)flags;
  graph *copy = calloc(1, sizeof *copy);
  copy->end = &copy->first;
  for (const node *at = from->first; at; at = at->next) {
    *copy->end = copied(at);
    copy->end = &(*copy->end)->next;
  }
  return *made = copy, OK;
}

int cudaGraphDestroy(graph *old) {
  for (node *at = old->first, *next; at; at = next) {
    next = at->next;
    free(at->arguments);
    free(at);
  }
  return free(old), OK;
}

int cudaGraphExecDestroy(graph *old) { return cudaGraphDestroy(old); }

/* ---- launches ---- */

static unsigned thread_order(void) {
  const char *given = getenv("CUDA_EMULATOR_ORDER");
  return given ? (unsigned)atoi(given) : 0;
}

static int translated(const node *work, uint64_t *values, void **arguments) {
  for (unsigned i = 0; i < work->kernel->count; ++i) {
    values[i] = work->arguments[i];
    arguments[i] = &values[i];
    if (!work->kernel->pointers[i] || values[i] == 0) continue;
    char *bytes = device_bytes(values[i], 0);
    if (bytes == NULL) return SAY("argument %u of %s is no device pointer", i, work->kernel->name), LAUNCH_FAILED;
    values[i] = (uintptr_t)bytes;
  }
  return OK;
}

static int run_grid(const node *work) {
  uint64_t values[work->kernel->count + 1];
  void *arguments[work->kernel->count + 1];
  struct triple grid = work->grid;
  if (translated(work, values, arguments)) return failed(LAUNCH_FAILED);
  struct context *context = work->module->context;
  context->grid_size = grid;
  context->block_size = work->block;
  unsigned order = thread_order();
  ++launches;
  for (uint64_t block = 0; block < (uint64_t)grid.x * grid.y * grid.z; ++block) {
    context->block = (struct triple){block % grid.x, block / grid.x % grid.y, block / grid.x / grid.y};
    /* No block finds what another left. */
    memset(context->shared, POISON, work->kernel->waits ? context->shared_end - context->shared : 0);
    const char *fault = run_block(work->kernel, context, arguments, order);
    if (fault) return SAY("%s", fault), failed(LAUNCH_FAILED);
  }
  return OK;
}

/* The device's limits, and the one that the kernel was compiled with. */
static int too_large(const configuration *asked, const struct kernel *kernel) {
  static const unsigned grids[] = {0x7FFFFFFF, 65535, 65535}, blocks[] = {1024, 1024, 64};
  unsigned threads = asked->block[0] * asked->block[1] * asked->block[2];
  int wrong = threads > kernel->threads || asked->shared > SHARED;
  for (int i = 0; i < 3; ++i) wrong |= !asked->grid[i] || asked->grid[i] > grids[i] || !asked->block[i] || asked->block[i] > blocks[i];
  if (wrong)
    SAY("%s: %ux%ux%u blocks of %ux%ux%u threads with %u bytes are more, or less, than can be launched", kernel->name, asked->grid[0],
        asked->grid[1], asked->grid[2], asked->block[0], asked->block[1], asked->block[2], asked->shared);
  return wrong;
}

int cuLaunchKernelEx(const configuration *asked, function *launched, void **arguments, void **extra) {
  const struct kernel *kernel = launched->kernel;
  if (too_large(asked, kernel)) return INVALID;
  if (asked->shared || extra) return SAY("%s: dynamic shared memory is not emulated", kernel->name), UNSUPPORTED;
  uint64_t values[kernel->count + 1];
  memset(values, 0, sizeof values);
  for (unsigned i = 0; i < kernel->count; ++i) memcpy(&values[i], arguments[i], kernel->sizes[i]);
  node work = {NULL, kernel, launched->module, {asked->grid[0], asked->grid[1], asked->grid[2]},
               {asked->block[0], asked->block[1], asked->block[2]}, values};
  int refused = admitted(asked->stream);
  if (refused) return refused;
  if (capturing == NULL || asked->stream != capturing) return run_grid(&work);
  *capturing->captured->end = copied(&work);
  capturing->captured->end = &(*capturing->captured->end)->next;
  return OK;
}

int cudaGraphLaunch(const graph *launched, stream *at) {
  int refused = admitted(at);
  if (refused) return refused;
  ++replays;
  for (const node *work = launched->first; work; work = work->next) {
    int error = run_grid(work);
    if (error) return error;
  }
  return OK;
}

/* So far in this process; for tests. */
unsigned long cuda_emulator_launches(void) { return launches; }
unsigned long cuda_emulator_replays(void) { return replays; }

int cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, stream *at) {
  int refused = admitted(at);
  if (refused) return refused;
  if (capturing && at == capturing) return SAY("a copy is captured, which is not emulated"), failed(UNSUPPORTED);
  const void *source = kind == TO_DEVICE ? from : device_bytes((uintptr_t)from, size);
  void *target = kind == TO_HOST ? to : device_bytes((uintptr_t)to, size);
  if (!source || !target) return failed(INVALID);
  return memmove(target, source, size), OK;
}

int cudaMemcpyPeerAsync(void *to, int there, const void *from, int here, size_t size, stream *at) {
  return there || here ? failed(INVALID) : cudaMemcpyAsync(to, from, size, ON_DEVICE, at);
}

/* ---- modules ---- */

static size_t elf_size(const Elf64_Ehdr *header) { return header->e_shoff + (size_t)header->e_shnum * header->e_shentsize; }

int cuModuleLoadData(module **made, const void *image) {
  const Elf64_Ehdr *given = image;
  if (memcmp(given->e_ident, ELFMAG, SELFMAG) || (given->e_flags >> 8 & 0xFF) != MAJOR * 10 + MINOR)
    return SAY("code for another architecture is loaded"), NO_BINARY;
  size_t size = elf_size(given);
  char path[64];
  /* It stays open: dlopen takes a path that it has seen for the library that it opened there. */
  int file = memfd_create("kernels", 0);
  Elf64_Ehdr header = *given;
  header.e_machine = EM_X86_64;
  header.e_flags = header.e_ident[EI_ABIVERSION] = 0;
  if (write(file, &header, sizeof header) < 0 || write(file, (const char *)image + sizeof header, size - sizeof header) < 0) abort();
  snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  module *opened = calloc(1, sizeof *opened);
  opened->file = file;
  opened->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (opened->library == NULL) return SAY("%s", dlerror()), NO_BINARY;
  opened->context = dlsym(opened->library, "emulated_context");
  opened->context->barrier = wait_at_barrier;
  opened->context->active = active_lanes;
  opened->context->shuffle = shuffle_lanes;
  opened->context->misaligned = report_misaligned;
  return *made = opened, OK;
}

int cuModuleGetFunction(function **made, module *from, const char *name) {
  char symbol[1024];
  snprintf(symbol, sizeof symbol, "emulated_%s", name);
  const struct kernel *found = dlsym(from->library, symbol);
  if (found == NULL) return SAY("there is no kernel %s", name), NOT_FOUND;
  *made = malloc(sizeof **made);
  **made = (function){found, from};
  return OK;
}

int cuModuleUnload(module *old) { return dlclose(old->library), close(old->file), free(old), OK; }
int cuFuncSetAttribute(function *of, int attribute, int value) { return (void)of, (void)attribute, (void)value, OK; }
int cuTensorMapEncodeTiled(void) { return UNSUPPORTED; }

/* ---- the device ---- */

int cuInit(unsigned flags) { return (void)flags, OK; }
int cuDeviceGetCount(int *count) { return *count = 1, OK; }
int cudaGetDeviceCount(int *count) { return *count = 1, OK; }
int cudaGetDevice(int *device) { return *device = 0, OK; }
int cudaSetDevice(int device) { return device ? failed(INVALID) : OK; }
int cuDriverGetVersion(int *version) { return *version = VERSION, OK; }
int cuDeviceGetName(char *name, int size, int device) { return (void)device, snprintf(name, size, "CUDA emulator"), OK; }
int cudaGetDeviceProperties(char *properties, int device) { return cuDeviceGetName(properties, 256, device); }

int cudaDeviceGetAttribute(int *value, int attribute, int device) {
  static const int known[] = {[1] = 1024, [2] = 1024, [3] = 1024, [4] = 64, [8] = SHARED, [10] = WARP, [12] = 65536, [13] = 1000000,
                              [16] = 132, [38] = 50 << 20, [75] = MAJOR, [76] = MINOR};
  (void)device;
  return *value = attribute >= 0 && attribute < (int)(sizeof known / sizeof *known) ? known[attribute] : 0, OK;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) { return cudaDeviceGetAttribute(value, attribute, device); }

/* Work is done when it is asked for, so that there is nothing for an event to wait for. */
int cudaEventCreate(void **event) { return *event = malloc(1), OK; }
int cudaEventDestroy(void *event) { return free(event), OK; }
int cudaEventRecord(void *event, stream *at) { return (void)event, (void)at, OK; }
int cudaEventSynchronize(void *event) { return (void)event, OK; }
int cudaEventElapsedTime(float *ms, void *from, void *to) { return (void)from, (void)to, *ms = 0, OK; }

const char *cudaGetErrorString(int error) {
  static char text[64];
  snprintf(text, sizeof text, error ? "error %d of the CUDA emulator" : "no error", error);
  return text;
}

const char *cudaGetErrorName(int error) { return cudaGetErrorString(error); }
int cuGetErrorName(int error, const char **text) { return *text = cudaGetErrorString(error), OK; }
int cuGetErrorString(int error, const char **text) { return *text = cudaGetErrorString(error), OK; }
int cudaPeekAtLastError(void) { return last_error; }

int cudaGetLastError(void) {
  int error = last_error;
  last_error = OK;
  return error;
}
