"""Takes the constants out of a lowered module into a file that a loader maps: the library stays
small, and so does loading it.

Constants left in the library are serialised by way of LLVM at some five times their size in memory,
and loading them takes four times it; mapped, they cost their own size once for all the processes
that load them.
"""

import hashlib
from collections.abc import Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from compiler.ir.arrays import elements_of
from relaxd.contract.bundle.manifest import FileEntry, Weight

ALIGNMENT = 64
SMALLEST = 1024
"""Bytes of a constant that is worth a place of its own in the file."""


@dataclass(frozen=True)
class Separated:
    """module: `main` takes `constants`, in order, as its last parameters."""

    module: tvm.IRModule
    constants: tuple[tvm.runtime.Tensor, ...]


def separate(module: tvm.IRModule, entry: str = "main", smallest: int = SMALLEST) -> Separated:
    """Make every constant of `entry` of `smallest` bytes or more a parameter; equal ones share one.

    Empty ones too: TVM writes them into a library, and then cannot read it.
    """
    lift = _Lift(module, smallest)
    function = module[entry]
    body = lift.visit_expr(function.body)
    parameters = [*function.params, *(variable for variable, _ in lift.lifted)]
    rebuilt = relax.Function(parameters, body, function.ret_ty, function.is_pure, function.attrs)
    # What is neither a constant nor a weight changes from call to call: CUDA graphs need to know.
    rebuilt = rebuilt.with_attr("num_input", len(function.params))
    result = tvm.IRModule(module.functions, attrs=module.attrs)
    result.update_func(module.get_global_var(entry), rebuilt)
    return Separated(result, tuple(tensor for _, tensor in lift.lifted))


@dataclass(frozen=True)
class Layout:
    """Where each constant is in the file, and the bytes of the file; 0 where there is none."""

    table: tuple[Weight, ...]
    bytes: int


def layout(constants: Sequence[tvm.runtime.Tensor]) -> Layout:
    """Constants one after another, each aligned."""
    weights: list[Weight] = []
    offset = 0
    for constant in constants:
        offset += -offset % ALIGNMENT
        shape = tuple(int(size) for size in constant.shape)
        weights.append(Weight(str(constant.dtype), shape, offset))
        offset += _bytes_of(constant).nbytes
    return Layout(tuple(weights), max(offset, 1) if weights else 0)


@dataclass(frozen=True)
class Written:
    """Where each constant is in the file, and the entry of the file; None where there is none."""

    table: tuple[Weight, ...]
    entry: FileEntry | None


def write(constants: Sequence[tvm.runtime.Tensor], path: Path) -> Written:
    """Write the constants' values one after another, each aligned; no constants, no file."""
    table = layout(constants).table
    if not table:
        return Written((), None)
    digest, position = hashlib.sha256(), 0
    digesting: list[Future[None]] = []
    # A digest takes as long as the file, and neither needs Python's lock.
    with path.open("wb") as file, ThreadPoolExecutor(1) as other:

        def add(content: bytes | memoryview) -> None:
            nonlocal position
            position += file.write(content)
            digesting.append(other.submit(digest.update, content))

        for constant, weight in zip(constants, table, strict=True):
            add(bytes(weight.offset - position))
            add(_bytes_of(constant))
        if not position:
            add(b"\0")  # an empty file cannot be mapped
    for part in digesting:
        part.result()
    return Written(table, FileEntry(digest.hexdigest(), position))


def _bytes_of(tensor: tvm.runtime.Tensor) -> memoryview:
    return np.ascontiguousarray(elements_of(tensor)).reshape(-1).view("uint8").data


_SAMPLE = 256


class _Contents:
    """Tells tensors apart by what they hold. Most differ in their first or last bytes, so only
    those that do not are digested: a digest takes as long as all else that is done with a weight
    here.
    """

    def __init__(self) -> None:
        self._first: dict[Hashable, tvm.runtime.Tensor] = {}
        self._digests: dict[Hashable, bytes] = {}

    def key(self, tensor: tvm.runtime.Tensor, values: memoryview) -> Hashable:
        """The same for tensors of one dtype and shape if and only if they hold the same bytes;
        values: the tensor's.
        """
        kind = (str(tensor.dtype), tuple(tensor.shape))
        ends = (kind, bytes(values[:_SAMPLE]), bytes(values[-_SAMPLE:]))
        if ends not in self._first:
            self._first[ends] = tensor
            return ends, b""
        if ends not in self._digests:
            self._digests[ends] = hashlib.sha256(_bytes_of(self._first[ends])).digest()
        digest = hashlib.sha256(values).digest()
        return ends, b"" if digest == self._digests[ends] else digest


@mutator
class _Lift(PyExprMutator):  # type: ignore[misc]
    """Replaces large constants by variables and remembers which."""

    def __init__(self, module: tvm.IRModule, smallest: int) -> None:
        super().__init__(module)
        self.smallest = smallest
        self.lifted: list[tuple[relax.Var, tvm.runtime.Tensor]] = []
        self._known: dict[Hashable, relax.Var] = {}
        self._contents = _Contents()

    def visit_generic_const_(self, op: Any) -> relax.Expr:
        """Called by TVM for each constant."""
        tensor = op.value
        if not isinstance(tensor, tvm.runtime.Tensor):
            return op
        values = _bytes_of(tensor)
        if 0 < values.nbytes < self.smallest:
            return op
        key = self._contents.key(tensor, values)
        if key not in self._known:
            self._known[key] = relax.Var(f"weight_{len(self.lifted)}", op.ty)
            self.lifted.append((self._known[key], tensor))
        return self._known[key]
