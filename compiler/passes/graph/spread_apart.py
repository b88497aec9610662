"""Keeps what spreads the small result of a matmul over a larger tensor out of the matmul's kernel.

Squeeze-excite blocks multiply an image by a vector that a convolution of one place computes.
Fused, the loops of the convolution would lie within those of the image, where no family of matmuls
reads them: in a classifier of text lines such kernels took half of the time.
"""

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, sym, tirx

from compiler.passes.framework.base import Phase
from compiler.passes.framework.bindings import bindings_within
from compiler.passes.graph.apart import marked_apart
from compiler.passes.graph.op_patterns import BROADCAST, FUSABLE, INJECTIVE, MARK, OPAQUE
from compiler.tir.exprs import op_name
from compiler.tir.loops import product


@dataclass(frozen=True)
class SpreadApart:
    """Marks as injective, so that FuseOps starts a kernel with it, each elementwise program that
    has more results than the matmul, convolution or chain behind one that it reads.
    """

    name = "spread_apart"
    phase = Phase.TENSOR_PROGRAMS

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Gives such calls a copy of their PrimFunc; returns the same module if there are none."""
        found: set[Any] = set()
        for func in module.functions.values():
            if isinstance(func, relax.Function):
                found |= _spreading(module, func)
        return marked_apart(module, found, INJECTIVE)


def _spreading(module: tvm.IRModule, func: relax.Function) -> set[Any]:
    """The variables whose programs spread the result of a fusable program."""
    found, sizes = set(), dict[Any, Any]()
    for var, value in bindings_within(func.body):
        if op_name(value) != "relax.call_tir" or not isinstance(var.ty, relax.TensorType):
            continue
        mark, size = _mark_of(module[value.args[0]]), product(list(var.ty.shape.values))
        if mark == FUSABLE:
            sizes[var] = size
        elif mark <= BROADCAST:
            read = [sizes[arg] for arg in value.args[1].fields if arg in sizes]
            if any(not sym.Analyzer().can_prove_equal(size, small) for small in read):
                found.add(var)
            elif read:
                sizes[var] = size
    return found


def _mark_of(func: tvm.ir.BaseFunc) -> int:
    """TVM's kind of a program; that of others is OPAQUE."""
    return int((func.attrs or {}).get(MARK, OPAQUE)) if isinstance(func, tirx.PrimFunc) else OPAQUE
