"""Finds tables whose rows are read and which are also, transposed, the weights of a matmul, as the
embeddings of many language models are.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx

from compiler.ir.arrays import values_of
from compiler.passes.match.rewriting import is_weight
from compiler.tir.exprs import as_int, op_name
from compiler.tir.stages import read_program

Array = np.ndarray[Any, Any]


class TiedTables:
    """The tables of a module that are both, by a digest of their rows."""

    def __init__(self, rewriter: Any, module: tvm.IRModule) -> None:
        self._rewriter, self._module = rewriter, module
        tables, weights = [], []
        for call in calls_of(module):
            table = self.table_read(call)
            if table is not None:
                tables.append(table)
            elif op_name(call) == "relax.matmul":
                right = rewriter.constant_of(call.args[1])
                weights += [values_of(right).T] if is_weight(right) else []
        # Digests of all weights would take seconds.
        self.shapes = {table.shape for table in tables} & {weight.shape for weight in weights}
        read, multiplied = (
            {digest(array) for array in arrays if array.shape in self.shapes}
            for arrays in (tables, weights)
        )
        self.digests = read & multiplied

    def table_read(self, call: Any) -> Array | None:
        """The constant float32 matrix of which the call reads rows, None for any other call."""
        table = table_of_rows(self._rewriter, self._module, call)
        return None if table is None else values_of(table)


def table_of_rows(rewriter: Any, module: tvm.IRModule, call: Any) -> Any:
    """The constant float32 matrix of which the call reads rows, as Relax has it; None for any other
    call.
    """
    if op_name(call) != "relax.call_tir" or len(call.args[1].fields) != 2:
        return None
    table = rewriter.constant_of(call.args[1].fields[0])
    return table if is_weight(table) and _reads_rows(module[call.args[0]]) else None


def digest(table: Array) -> bytes:
    """The digest of a matrix, row by row."""
    hashed = hashlib.sha256(str(table.shape).encode())
    step = max((1 << 24) // max(table[:1].nbytes, 1), 1)
    for first in range(0, len(table), step):
        hashed.update(table[first : first + step].tobytes())
    return hashed.digest()


def rows_of_panels(index: Any, panels: Any, rows: int) -> Any:
    """Rows of a table that lies in panels of a matmul by its transpose."""
    width = int(panels.shape[2])

    def element(*position: Any) -> Any:
        row = index(*position[:-1]).astype("int64")
        row = tirx.Select(row < 0, row + rows, row)
        return panels(row // width, position[-1], row % width)

    return te.compute((*index.shape, panels.shape[1]), element, name="rows")


def calls_of(module: tvm.IRModule) -> Iterator[Any]:
    """Every call in the module's Relax functions."""
    calls: list[Any] = []

    def visit(expr: Any) -> None:
        if isinstance(expr, relax.Call):
            calls.append(expr)

    for function in module.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    yield from calls


def _reads_rows(func: Any) -> bool:
    """True if a program of (table, indices) reads the row at each index, negative ones from the
    end, as the importers write it.
    """
    program = read_program(func) if isinstance(func, tirx.PrimFunc) else None
    stage = program.stages[0] if program is not None and len(program.stages) == 1 else None
    if program is None or stage is None or stage.init is not None or stage.name != "take":
        return False
    value = stage.value
    if not isinstance(value, tvm.ir.TensorLoad) or not value.source.same_as(program.params[0]):
        return False
    last = stage.axes[-1].var
    return (
        len(value.indices) == 2
        and value.indices[1].same_as(last)
        and as_int(stage.axes[-1].extent) == as_int(program.params[0].shape[1])
        and not isinstance(value.indices[0], tvm.ir.Var)
    )
