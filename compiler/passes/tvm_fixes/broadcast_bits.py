"""Broadcasts the bits of a bfloat16 that a vector loop stores, in place of the number.

Of a number that is the same in each lane, such as what a tensor is padded with, VectorizeLoop makes
Broadcast(reinterpret("bfloat16", bits)). BF16StorageLegalize makes integers of the buffer and of
the reinterpretation, but leaves the Broadcast one of bfloat16, which cannot be stored there.

Upstream: no report was found. The pass can go when BF16StorageLegalize visits a Broadcast.
"""

from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.framework.base import Phase
from compiler.passes.framework.programs import ProgramPass
from compiler.passes.framework.properties import Property
from compiler.tir.exprs import dtype_of, op_name
from compiler.tir.loops import with_body

_BFLOAT16 = "bfloat16"
_REINTERPRET = "tirx.reinterpret"


@dataclass(frozen=True)
class BroadcastBits(ProgramPass):
    """Makes reinterpret("bfloat16x32", Broadcast(bits, 32)) of what vector statements store."""

    name = "broadcast_bits"
    phase = Phase.LOWERED_LOOPS
    requires = (Property.NO_BFLOAT16_ARITHMETIC, Property.NO_VECTOR_LOOPS)

    def rewrite(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """Rewrites the statements of a program that store bfloat16."""
        return with_body(func, tvm_ffi.structural_map(func.body, ((tirx.BufferStore, _store),)))


def _store(node: Any) -> Any:
    value = node.value
    if (
        dtype_of(node.buffer) != _BFLOAT16
        or not isinstance(value, prim.Broadcast)
        or op_name(value.value) != _REINTERPRET
    ):
        return node
    (bits,) = value.value.args
    # The type has as many lanes, which only the processor knows where vectors are scalable.
    vector = tirx.reinterpret(dtype_of(value), prim.Broadcast(bits, value.lanes))
    return tirx.BufferStore(node.buffer, vector, list(node.indices))
