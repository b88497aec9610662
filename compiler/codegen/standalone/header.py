"""The header of a library that needs no runtime: its functions, and what its model takes and
gives.
"""

from pathlib import Path

from compiler.codegen.standalone.source import Signature
from relaxd.contract.dims.names import clean_comment
from relaxd.contract.dims.tensors import TensorSpec, storage_of

_INTERFACE = Path(__file__).with_name("interface.h")
_FUNCTIONS = Path(__file__).with_name("functions.h")
_TEXT = """\
/* {name}, compiled by relaxd for {target}.
 *
{signature} *
 * bind takes the dims in the order above. It needs C's library for memory and mathematics alone.
 */
#ifndef {guard}_H
#define {guard}_H
{interface}
{functions}#endif
"""
_WEIGHTS_FILE = "the content of weights.bin, at a multiple of 64, which must stay there"
_NO_WEIGHTS = "NULL, since the library holds them"
_WRITTEN = """\
 *
 * Each i/o is a cache of the caller's, which run writes rows of where it lies, whatever the const
 * in its type: an array in C's order, in memory that may be written, as long as the tokens in it
 * are wanted. Its third axis has room for rows of tokens; those behind the last token are neither
 * read nor written. The key "state" of manifest.json says what other inputs state of the caches.
"""
_ALLOCATOR = """
/* The module's memory: at a multiple of 64, NULL where there is none left. */
void *@P@_allocate(size_t bytes);
void @P@_release(void *at);
"""
_WATCH = """
/* Has each run of the context report its kernels: begins is 1 before a kernel's call and 0 behind
 * it, and the thread that called run reports. The names are those of kernels.json. NULL ends it;
 * between open and close, and not during run. */
void @P@_watch(@P@ *, void (*watch)(void *user, const char *kernel, int begins), void *user);
"""
_TEAM = """
/* Before any open: so many helpers, at most 31, will take part in every run; waits: whether the
 * thread that calls run may sleep, as a page may not. */
int @P@_team(int helpers, int waits);

/* What helper 1, 2... calls, in an instance and on a stack of its own. It returns by a trap alone,
 * after which it has to be called again. */
void @P@_help(int number);
"""


def header_text(
    signature: Signature,
    prefix: str,
    target: str,
    *,
    allocator: bool,
    team: bool = False,
    watch: bool = False,
) -> str:
    """The text of `model.h`; allocator, team, watch: whether the library has functions for memory,
    for threads, and to report the calls of its kernels.
    """
    written = signature.written
    lines = [_line("i/o" if s.name in written else "in ", s) for s in signature.inputs]
    lines += [_line("out", spec) for spec in signature.outputs]
    lines += [
        f" *   dim  {clean_comment(d.name)}: {clean_comment(d.describe())}\n"
        for d in signature.bound
    ]
    more = ((_ALLOCATOR, allocator), (_TEAM, team), (_WATCH, watch))
    functions = _FUNCTIONS.read_text().replace(
        "@MORE@", "".join(text for text, wanted in more if wanted)
    )
    functions = functions.replace("@WEIGHTS@", _NO_WEIGHTS if signature.embedded else _WEIGHTS_FILE)
    return _TEXT.format(
        name=clean_comment(signature.name),
        target=clean_comment(target),
        signature="".join(lines) + (_WRITTEN if written else ""),
        guard=prefix.upper(),
        interface=_INTERFACE.read_text(),
        functions=functions.replace("@P@", prefix),
    )


def _line(kind: str, spec: TensorSpec) -> str:
    stored = storage_of(spec.dtype)
    bytes_ = f", one element a byte as {stored}" if stored != spec.dtype else ""
    return f" *   {kind}  {clean_comment(spec.name)}: {clean_comment(spec.text)}{bytes_}\n"
