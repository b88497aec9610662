/* What board.c measures. */
void board_begin(void);
void board_end(size_t context, int64_t arena);
