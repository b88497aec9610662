"""Keeps what spreads the small result of a matmul over a larger tensor out of the matmul's kernel.

Squeeze-excite blocks multiply an image by a vector that a convolution of one place computes.
Fused, the loops of the convolution would lie within those of the image, where no family of matmuls
reads them: in a classifier of text lines such kernels took half of the time.
"""

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, sym, tirx

from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.framework.bindings import bindings_within
from compiler.passes.framework.properties import Property
from compiler.passes.fusion.apart import marked_apart
from compiler.passes.match.op_patterns import BROADCAST, FUSABLE, INJECTIVE, MARK, OPAQUE
from compiler.tir.exprs import as_int, loads, op_name, require_int, uses
from compiler.tir.loops import multiply_extents
from compiler.tir.stages import Stage, read_program


@dataclass(frozen=True)
class SpreadApart(ModulePass):
    """Marks as injective, so that FuseOps starts a kernel with it, each elementwise program that
    has more results than the matmul, convolution or chain behind one that it reads.
    """

    name = "spread_apart"
    phase = Phase.TENSOR_PROGRAMS
    requires = (Property.OP_PATTERNS,)

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Gives such calls a copy of their PrimFunc; returns the same module if there are none."""
        apart: set[Any] = set()
        for func in module.functions.values():
            if isinstance(func, relax.Function):
                apart |= _spreading(module, func)
        return marked_apart(module, apart, INJECTIVE)


def _spreading(module: tvm.IRModule, func: relax.Function) -> set[Any]:
    """The variables whose programs spread the result of a fusable program."""
    apart, sizes = set(), dict[Any, list[Any]]()
    for var, value in bindings_within(func.body):
        if op_name(value) != "relax.call_tir" or not isinstance(var.ty, relax.TensorType):
            continue
        program, size = module[value.args[0]], multiply_extents(list(var.ty.shape.values))
        mark = _mark_of(program)
        if mark == FUSABLE:
            sizes[var] = [size, *(size * length for length in _row_lengths(program))]
        elif mark <= BROADCAST:
            read = [sizes[arg] for arg in value.args[1].fields if arg in sizes]
            if not all(any(_equal(size, one) for one in fitting) for fitting in read):
                apart.add(var)
            elif read:
                sizes[var] = [size, *(one for fitting in read for one in fitting[1:])]
    return apart


def _equal(lhs: Any, rhs: Any) -> bool:
    return bool(sym.Analyzer().can_prove_equal(lhs, rhs))


def _row_lengths(func: tvm.ir.BaseFunc) -> list[int]:
    """How many elements the rows have that a program reduces to one result each, where that is
    known: what spreads the results over the rows again runs in the loop over the rows.
    """
    program = read_program(func)
    return [
        require_int(stage.reduced[0].extent)
        for stage in (() if program is None else program.stages)
        if any(_is_row(stage, read) for read in loads(stage.value))
    ]


def _is_row(stage: Stage, read: Any) -> bool:
    """True if each result of the stage is of a row of a tensor, of known length."""
    # A number, such as the greatest element of a vector, has no indices.
    if len(stage.reduced) != 1 or not read.indices or read.source.same_as(stage.buffer):
        return False
    (column,), (*indices, last) = stage.reduced, read.indices
    return (
        as_int(column.extent) is not None
        and last.same_as(column.var)
        and not any(uses(index, column.var) for index in indices)
    )


def _mark_of(func: tvm.ir.BaseFunc) -> int:
    """TVM's kind of a program; that of others is OPAQUE."""
    return int((func.attrs or {}).get(MARK, OPAQUE)) if isinstance(func, tirx.PrimFunc) else OPAQUE
