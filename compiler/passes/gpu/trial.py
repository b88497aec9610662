"""Compiles one scheduled kernel on trial: TVM's rules may give a kernel with symbolic extents a
schedule that its code generators do not accept.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import tvm
import tvm_ffi
from tvm import tirx

from compiler.errors import summary
from compiler.passes.gpu.bound import is_bound

_LOADER = "ffi.Module.create.cuda"
_FOREIGN_TO_WGSL = re.compile(r"\b(?:[iu](?:8|16|64)|f64)\b")
"""Types that WGSL does not have and TVM writes into it."""
_NOT_FINITE = re.compile(r"\b(?:inff?|nanf?)\b")
"""Numbers that WGSL does not have."""
_DECLARED_INSIDE = re.compile(r"\( {2,}\w+ (\w+) = ")
"""A declaration inside of an expression, which TVM writes for the index of a vector's store."""


def refusal(func: tirx.PrimFunc, target: tvm.target.Target) -> str | None:
    """Why the target's code generator does not accept `func`, None if it does. The code is thrown
    away.
    """
    if not is_bound(func):
        return "a loop is left unbound"
    try:
        with sources_only():
            built = tvm.tirx.build(func.with_attr("global_symbol", "kernel"), target)
    except MemoryError:
        raise
    except Exception as error:  # whatever TVM raises is the answer
        return summary(error)
    sources = "".join(module.inspect_source() for module in built.imports)
    return _flaw(sources, target.kind.name)


def _flaw(sources: str, kind: str) -> str | None:
    """A known flaw of TVM's code generators for which drivers refuse the `sources`, else None."""
    if kind == "webgpu" and (match := _FOREIGN_TO_WGSL.search(sources)):
        return f"WGSL has no type {match[0]}"
    if kind == "webgpu" and (match := _NOT_FINITE.search(sources)):
        return f"WGSL has no {match[0]}"
    if match := _DECLARED_INSIDE.search(sources):
        return f"the variable {match[1]} is declared inside of an expression"
    return None


@contextmanager
def sources_only() -> Iterator[None]:
    """Makes TVM keep CUDA kernels as sources, as it does on a machine without a driver."""
    loader = tvm.get_global_func(_LOADER, allow_missing=True)
    if loader is not None:
        tvm_ffi.remove_global_func(_LOADER)
    try:
        yield
    finally:
        if loader is not None:
            tvm.register_global_func(_LOADER, loader, override=True)
