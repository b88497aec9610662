"""The header of a library that needs no runtime: its functions, and what its model takes and
gives.
"""

from pathlib import Path

from compiler.codegen.standalone.source import Signature
from relaxd.contract.tensors import TensorSpec, storage_of

_INTERFACE = Path(__file__).with_name("interface.h")
_TEXT = """\
/* {name}, compiled by relaxd for {target}.
 *
{signature} *
 * bind takes the dims in the order above. It needs C's library for memory and mathematics alone.
 */
#ifndef {guard}_H
#define {guard}_H
{interface}
#ifdef __cplusplus
extern "C" {{
#endif

/* A context. Several may be at work at once, each by one thread at a time; there is no global state. */
typedef struct {p} {p};

/* Bytes of a context, which the caller places at a multiple of 64. */
size_t {p}_size(void);

/* weights: the content of weights.bin, at a multiple of 64, which must stay there. host: NULL for memory from malloc, where there is
 * a C library, and one thread; it is copied. */
int {p}_open({p} *, const void *weights, const relaxd_host *host);

/* Bytes of arena at these dims, or one of the codes above, negated. What run gave before is lost. */
int64_t {p}_bind({p} *, const int64_t *dims);

/* Working memory of as many bytes as bind said, at a multiple of 64. */
int {p}_arena({p} *, void *arena);

/* Inputs lie anywhere, densely in C's order. An output is written where `outputs` says; for NULL, or where `outputs` is NULL, the
 * model finds a place for it. */
int {p}_run({p} *, const void *const *inputs, void *const *outputs);

/* The extents of an output: after bind -1 where only a run knows one, after run all. Such an output must be given as NULL. */
const int64_t *{p}_shape(const {p} *, int output);

/* Where an output lies, until the next bind, arena or run. */
const void *{p}_output(const {p} *, int output);

/* What the last call that failed found wrong. */
const char *{p}_failure(const {p} *);

const relaxd_interface *{p}_interface(void);

/* Gives back what the host allocated. */
void {p}_close({p} *);
{more}
#ifdef __cplusplus
}}
#endif
#endif
"""
_ALLOCATOR = """
/* The module's memory: at a multiple of 64, NULL where there is none left. */
void *{p}_allocate(size_t bytes);
void {p}_release(void *at);
"""


def header_text(signature: Signature, prefix: str, target: str, allocator: bool) -> str:
    """The text of `model.h`; allocator: whether the library has functions for memory."""
    lines = [_line("in ", spec) for spec in signature.inputs]
    lines += [_line("out", spec) for spec in signature.outputs]
    lines += [f" *   dim  {plain(d.name)}: {plain(d.describe())}\n" for d in signature.bound]
    return _TEXT.format(
        name=plain(signature.name),
        target=plain(target),
        signature="".join(lines),
        guard=prefix.upper(),
        p=prefix,
        interface=_INTERFACE.read_text(),
        more=_ALLOCATOR.format(p=prefix) if allocator else "",
    )


def _line(kind: str, spec: TensorSpec) -> str:
    held = storage_of(spec.dtype)
    bytes_ = f", one element a byte as {held}" if held != spec.dtype else ""
    return f" *   {kind}  {plain(spec.name)}: {plain(spec.text)}{bytes_}\n"


def plain(text: str) -> str:
    """A model's own words, fit for a comment."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c in " _.,:;+*%<>=[]()-") else "_" for c in text)
    return kept.replace("*/", "_")
