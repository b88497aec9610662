/* The disk's files in memory, and what programs have open. */
#include "kernel.h"

enum { OPEN = 64, STANDARD = 3, TRUNCATE = 01000, WRITABLE = 3, STATUS = 144, REGULAR = 0100755, FOLDER = 040755, TERMINAL = 020666 };

static struct {
  struct file *file;
  u64 at;
} open_now[OPEN];

struct file *find(const char *path) {
  for (u64 index = 0; index < table->files; ++index)
    if (same(files()[index].path, path)) return &files()[index];
  return 0;
}

int is_folder(const char *path) {
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

/* The contents come from the disk when they are first asked for, and stay. */
void load(struct file *file) {
  if (file->content) return;
  file->content = take_for_good((file->capacity > file->size ? file->capacity : file->size) + SECTOR);
  read_disk(file->sector, file->content, file->size);
}

void save_written(void) {
  for (u64 index = 0; index < table->files; ++index) {
    struct file *file = &files()[index];
    if (file->capacity && file->content) write_disk(file->sector, file->content, file->size);
  }
}

void forget_open(void) { clear(open_now, sizeof open_now); }

struct file *opened(u64 number) { return number < OPEN ? open_now[number].file : 0; }

i64 open_file(const char *path, u64 flags) {
  struct file *file = find(path);
  if (!file || ((flags & WRITABLE) && !file->capacity)) return NO_ENTRY;
  load(file);
  if (flags & TRUNCATE) file->size = 0;
  for (u64 number = STANDARD; number < OPEN; ++number) {
    if (open_now[number].file) continue;
    open_now[number].file = file;
    open_now[number].at = 0;
    return (i64)number;
  }
  return TOO_MANY;
}

i64 close_file(u64 number) {
  if (!opened(number)) return number < STANDARD ? 0 : BAD_NUMBER;
  open_now[number].file = 0;
  return 0;
}

/* at: where to read, without moving on; -1 reads on from where the last read ended. */
i64 read_file(u64 number, void *to, u64 size, i64 at) {
  struct file *file = opened(number);
  if (!file) return number == 0 ? 0 : BAD_NUMBER;
  u64 begin = at < 0 ? open_now[number].at : (u64)at;
  u64 left = begin < file->size ? file->size - begin : 0;
  if (size > left) size = left;
  copy(to, file->content + begin, size);
  if (at < 0) open_now[number].at += size;
  return (i64)size;
}

i64 write_file(u64 number, const void *from, u64 size) {
  struct file *file = opened(number);
  if (!file) {
    if (number == 0 || number >= STANDARD) return BAD_NUMBER;
    say(from, size);
    return (i64)size;
  }
  u64 at = open_now[number].at;
  if (at + size > file->capacity) return NO_MEMORY;
  copy(file->content + at, from, size);
  open_now[number].at += size;
  if (file->size < at + size) file->size = at + size;
  return (i64)size;
}

i64 seek_file(u64 number, i64 offset, u64 whence) {
  if (!opened(number)) return BAD_NUMBER;
  i64 from[] = {0, (i64)open_now[number].at, (i64)open_now[number].file->size};
  if (whence > 2 || from[whence] + offset < 0) return INVALID;
  open_now[number].at = (u64)(from[whence] + offset);
  return from[whence] + offset;
}

static i64 status(u64 inode, u32 mode, u64 size, u8 *to) {
  clear(to, STATUS);
  *(u64 *)(to + 8) = inode;
  *(u64 *)(to + 16) = 1;
  *(u32 *)(to + 24) = mode;
  *(u64 *)(to + 48) = size;
  *(u64 *)(to + 56) = PAGE;
  return 0;
}

i64 status_of_path(const char *path, void *to) {
  struct file *file = find(path);
  if (file) return status(file->inode, REGULAR, file->size, to);
  return is_folder(path) ? status(1, FOLDER, 0, to) : NO_ENTRY;
}

i64 status_of_open(u64 number, void *to) {
  struct file *file = opened(number);
  if (file) return status(file->inode, REGULAR, file->size, to);
  return number < STANDARD ? status(2, TERMINAL, 0, to) : BAD_NUMBER;
}
