#ifdef __cplusplus
extern "C" {
#endif

/* A context. Several may be at work at once, each by one thread at a time; there is no global
 * state. */
typedef struct @P@ @P@;

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif
/* Bytes of a context, which the caller places at a multiple of 64. */
size_t @P@_size(void);

/* weights: @WEIGHTS@. host: NULL for memory from malloc, where there is
 * a C library, and one thread; it is copied. */
int @P@_open(@P@ *, const void *weights, const relaxd_host *host);

/* Bytes of arena at these dims, or one of the codes above, negated. What run gave before is
 * lost. */
int64_t @P@_bind(@P@ *, const int64_t *dims);

/* Working memory of as many bytes as bind said, at a multiple of 64. */
int @P@_arena(@P@ *, void *arena);

/* Inputs lie anywhere, densely in C's order. An output is written where `outputs` says; for NULL,
 * or where `outputs` is NULL, the model finds a place for it. */
int @P@_run(@P@ *, const void *const *inputs, void *const *outputs);

/* The extents of an output: after bind -1 where only a run knows one, after run all. Such an
 * output must be given as NULL. */
const int64_t *@P@_shape(const @P@ *, int output);

/* Where an output lies, until the next bind, arena or run. */
const void *@P@_output(const @P@ *, int output);

/* What the last call that failed found wrong. */
const char *@P@_failure(const @P@ *);

const relaxd_interface *@P@_interface(void);

/* Gives back what the host allocated. */
void @P@_close(@P@ *);
@MORE@#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
