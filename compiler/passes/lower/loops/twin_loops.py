"""Recognizes loops over threads and the serial loops that do the same."""

from collections.abc import Iterator
from typing import Any

import tvm
from tvm import tirx
from tvm.tirx.stmt import ForKind
from tvm_ffi import structural_equal, structural_walk

from compiler.tir.exprs import op_name
from compiler.tir.loops import TAKE, TAKE_CODE, Stmt

_IMPORT = "pragma_import_llvm"


def takes_shares(stmt: Any) -> bool:
    """Recognizes a parallel loop whose workers take shares; kernels import other code too."""
    return str(stmt.attr_key) == _IMPORT and str(stmt.value.value) == TAKE_CODE


def is_serial_twin(parallel: Stmt, serial: Stmt | None) -> bool:
    """Recognizes a serial loop over what `parallel` shares out."""
    if not isinstance(serial, tirx.For) or serial.kind != ForKind.SERIAL:
        return False
    extent = next(_shared(parallel), None)
    return extent is not None and structural_equal(extent, serial.extent)


def _shared(stmt: Stmt) -> Iterator[Any]:
    """The number of tasks, where the statement's last part is a parallel loop."""
    last = stmt.seq[-1] if isinstance(stmt, tirx.SeqStmt) else stmt
    if isinstance(last, tirx.For) and last.kind == ForKind.PARALLEL:
        yield last.extent
    elif isinstance(last, tirx.AttrStmt) and takes_shares(last):
        counts: list[Any] = []

        def take(node: Any) -> None:
            if op_name(node) == "tirx.call_extern" and str(node.args[0].value) == TAKE:
                counts.append(node.args[2])

        structural_walk(last.body, (tvm.ir.Call, take), order="pre")
        yield from counts[:1]


def loop_as(loop: Any, kind: ForKind, body: Stmt) -> Stmt:
    """The loop as one of another kind with another body."""
    return tirx.For(
        loop.loop_var, loop.min, loop.extent, kind, body, None, loop.annotations, loop.step
    )
