/* What loaders of libraries for other systems share. LIBRARY is the library's path. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void stop(const char *what, const char *of) {
  fprintf(stderr, "%s %s\n", what, of);
  exit(1);
}

static uint8_t *read_file(void) {
  FILE *stream = fopen(LIBRARY, "rb");
  if (stream == NULL || fseek(stream, 0, SEEK_END) != 0) stop("cannot read", LIBRARY);
  long bytes = ftell(stream);
  rewind(stream);
  uint8_t *file = malloc((size_t)bytes + 1);
  if (file == NULL || fread(file, (size_t)bytes, 1, stream) != 1) stop("cannot read", LIBRARY);
  fclose(stream);
  return file;
}

static uint64_t up_to(uint64_t bytes, uint64_t page) { return (bytes + page - 1) / page * page; }

/* Memory for all segments of a library, which begins at a page of its system's. */
static uint8_t *reserve(uint64_t bytes, uint64_t page) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS, protection = PROT_READ | PROT_WRITE;
  uint8_t *at = mmap(NULL, up_to(bytes, page) + page, protection, flags, -1, 0);
  if (at == MAP_FAILED) stop("no memory for", LIBRARY);
  return (uint8_t *)up_to((uintptr_t)at, page);
}

static void protect(uint8_t *at, uint64_t bytes, uint64_t page, int protection) {
  if (bytes != 0 && mprotect(at, up_to(bytes, page), protection) != 0)
    stop("cannot protect the segments of", LIBRARY);
}
