/* What the disk holds, and the kernel's parts. */
#ifndef KERNEL_H
#define KERNEL_H

#include "machine.h"

enum { TABLE_SECTOR = 128, PAGE = 4096, ENDED = 1 << 16 };

/* The disk's table, as machine.py writes it: a heading, the files, the commands; a file that programs write has a capacity. */
struct heading {
  u64 files, commands, memory, bytes;
};

struct file {
  char path[216];
  u64 sector, size, capacity, inode;
  u8 *content;
};

struct command {
  u32 status, count;
  u64 clocks;
  char words[4080];
};

extern struct heading *const table;
struct file *files(void);
struct command *commands(void);

/* pages.c */
void forget_pages(u64 end);
u8 *take_pages(u64 bytes);
void claim_pages(u64 begin, u64 bytes);
void give_pages(u64 begin, u64 bytes);
u8 *take_for_good(u64 bytes);

/* files.c */
struct file *find(const char *path);
int is_folder(const char *path);
void load(struct file *file);
void save_written(void);
void forget_open(void);
i64 open_file(const char *path, u64 flags);
i64 close_file(u64 number);
i64 read_file(u64 number, void *to, u64 size, i64 at);
i64 write_file(u64 number, const void *from, u64 size);
i64 seek_file(u64 number, i64 offset, u64 whence);
i64 status_of_path(const char *path, void *to);
i64 status_of_open(u64 number, void *to);
struct file *opened(u64 number);

enum { NO_ENTRY = -2, BAD_NUMBER = -9, TRY_AGAIN = -11, NO_MEMORY = -12, INVALID = -22, TOO_MANY = -24, NO_CALL = -38 };

#endif
