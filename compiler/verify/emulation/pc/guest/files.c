/* The disk's files, which lie in memory once they are asked for, and those that are open. */
#include "kernel.h"

enum { OPEN = 64, STANDARD = 3, TRUNCATE = 01000, WRITABLE = 3 };
enum { DESCRIPTION = 144, REGULAR = 0100755, FOLDER = 040755, TERMINAL = 020666 };

static struct {
  struct file *file;
  u64 at;
} open_files[OPEN];

struct file *find_file(const char *path) {
  for (u64 index = 0; index < table->files; ++index)
    if (are_equal(files()[index].path, path)) return &files()[index];
  return 0;
}

static int is_folder(const char *path) {
  u64 size = length(path);
  while (size > 1 && path[size - 1] == '/') --size;
  for (u64 index = 0; index < table->files; ++index) {
    const char *other = files()[index].path;
    u64 equal = 0;
    while (equal < size && other[equal] == path[equal]) ++equal;
    if (equal == size && (other[size] == '/' || size == 1)) return 1;
  }
  return 0;
}

/* 0 where memory is too small for the file. */
int load_file(struct file *file) {
  if (file->content) return 1;
  u64 room = file->capacity > file->size ? file->capacity : file->size;
  file->content = allocate_at_end(room + SECTOR);
  if (!file->content) {
    print("out of memory: no room for ");
    print(file->path);
    print("\n");
    return 0;
  }
  read_disk(file->sector, file->content, file->size);
  return 1;
}

void save_written_files(void) {
  for (u64 index = 0; index < table->files; ++index) {
    struct file *file = &files()[index];
    if (file->capacity && file->content) write_disk(file->sector, file->content, file->size);
  }
}

static struct file *file_of(u64 number) { return number < OPEN ? open_files[number].file : 0; }

i64 open_file(const char *path, u64 flags) {
  struct file *file = find_file(path);
  if (!file || ((flags & WRITABLE) && !file->capacity)) return NO_ENTRY;
  if (!load_file(file)) return NO_MEMORY;
  if (flags & TRUNCATE) file->size = 0;
  for (u64 number = STANDARD; number < OPEN; ++number) {
    if (open_files[number].file) continue;
    open_files[number].file = file;
    open_files[number].at = 0;
    return (i64)number;
  }
  return TOO_MANY;
}

i64 close_file(u64 number) {
  if (!file_of(number)) return number < STANDARD ? 0 : BAD_NUMBER;
  open_files[number].file = 0;
  return 0;
}

/* at: where to read, leaving the file's position; -1 reads from that on and moves it. */
i64 read_file(u64 number, void *to, u64 size, i64 at) {
  struct file *file = file_of(number);
  if (!file) return number == 0 ? 0 : BAD_NUMBER;
  u64 begin = at < 0 ? open_files[number].at : (u64)at;
  u64 left = begin < file->size ? file->size - begin : 0;
  if (size > left) size = left;
  copy(to, file->content + begin, size);
  if (at < 0) open_files[number].at += size;
  return (i64)size;
}

i64 write_file(u64 number, const void *from, u64 size) {
  struct file *file = file_of(number);
  if (!file) {
    if (number == 0 || number >= STANDARD) return BAD_NUMBER;
    print_bytes(from, size);
    return (i64)size;
  }
  u64 at = open_files[number].at;
  if (at > file->capacity || size > file->capacity - at) {
    print("out of memory: a file of results is full\n");
    return NO_MEMORY;
  }
  copy(file->content + at, from, size);
  open_files[number].at += size;
  if (file->size < at + size) file->size = at + size;
  return (i64)size;
}

i64 seek_file(u64 number, i64 offset, u64 whence) {
  if (!file_of(number)) return BAD_NUMBER;
  i64 from[] = {0, (i64)open_files[number].at, (i64)open_files[number].file->size};
  if (whence > 2 || from[whence] + offset < 0) return INVALID;
  open_files[number].at = (u64)(from[whence] + offset);
  return from[whence] + offset;
}

/* Linux's `struct stat`. */
static i64 describe(u64 inode, u32 mode, u64 size, u8 *to) {
  clear(to, DESCRIPTION);
  *(u64 *)(to + 8) = inode;
  *(u64 *)(to + 16) = 1;
  *(u32 *)(to + 24) = mode;
  *(u64 *)(to + 48) = size;
  *(u64 *)(to + 56) = PAGE;
  return 0;
}

i64 describe_path(const char *path, void *to) {
  struct file *file = find_file(path);
  if (file) return describe(file->inode, REGULAR, file->size, to);
  return is_folder(path) ? describe(1, FOLDER, 0, to) : NO_ENTRY;
}

i64 describe_open_file(u64 number, void *to) {
  struct file *file = file_of(number);
  if (file) return describe(file->inode, REGULAR, file->size, to);
  return number < STANDARD ? describe(2, TERMINAL, 0, to) : BAD_NUMBER;
}
