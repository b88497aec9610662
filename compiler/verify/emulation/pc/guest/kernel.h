/* The contents of the disk, and the parts of the kernel. */
#ifndef KERNEL_H
#define KERNEL_H

#include "pc.h"

enum { TABLE_SECTOR = 128, PAGE = 4096, EXITED = 1 << 16 };

/* The table of the disk, as `disk.py` writes it: a heading, then the files. A file that the program
 * may write has a capacity. */
struct heading {
  u64 files, memory, bytes, arguments;
  u64 status; /* EXITED and the program's status, once it has ended */
  char words[4056];
};

struct file {
  char path[4056];
  u64 sector, size, capacity, inode;
  u8 *content; /* NULL until it is first asked for */
};

extern struct heading *const table;
struct file *files(void);

/* pages.c */
void prepare_pages(u64 memory);
u8 *allocate_pages(u64 bytes);
u8 *allocate_at_end(u64 bytes);
void mark_used(u64 begin, u64 bytes);
void free_pages(u64 begin, u64 bytes);

/* files.c */
struct file *find_file(const char *path);
int load_file(struct file *file);
void save_written_files(void);
i64 open_file(const char *path, u64 flags);
i64 close_file(u64 number);
i64 read_file(u64 number, void *to, u64 size, i64 at);
i64 write_file(u64 number, const void *from, u64 size);
i64 seek_file(u64 number, i64 offset, u64 whence);
i64 describe_path(const char *path, void *to);
i64 describe_open_file(u64 number, void *to);

/* Linux's error numbers. */
enum {
  NO_ENTRY = -2,
  BAD_NUMBER = -9,
  NO_MEMORY = -12,
  INVALID = -22,
  TOO_MANY = -24,
  NO_CALL = -38,
};

#endif
