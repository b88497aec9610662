"""Loops over two lanes for processors without vectors of two: LLVM would widen both lanes to 64
bits each, and call a library for them.
"""

from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.tirx.stmt import ForKind

from compiler.passes.framework.base import Phase
from compiler.passes.framework.programs import ProgramPass
from compiler.passes.framework.properties import Property
from compiler.tir.exprs import as_int
from compiler.tir.loops import with_body


@dataclass(frozen=True)
class UnrollPairs(ProgramPass):
    """Writes two statements in place of each vectorized loop over two lanes."""

    name = "unroll_pairs"
    phase = Phase.LOWERED_LOOPS
    requires = (Property.FLAT_BUFFERS,)

    def rewrite(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """Rewrites the loops of a program."""
        return with_body(func, tvm_ffi.structural_map(func.body, [(tirx.For, _unrolled)]))


def _unrolled(loop: Any) -> Any:
    if loop.kind != ForKind.VECTORIZED or as_int(loop.extent) != 2:
        return loop
    return tirx.For(loop.loop_var, loop.min, loop.extent, ForKind.UNROLLED, loop.body)
