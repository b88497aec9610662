"""Recognises the importers' matmuls by block-wise quantized weights, and reads of their rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from compiler.ir.ops.quantized.block_matmul import CODES, KERNEL_NAMES, ROWS, Blocks
from compiler.passes.match.rewriting import CallRewriter
from compiler.tir.exprs import as_int, op_name, require_int

_MATMULS: Mapping[str, tuple[int, bool]] = {
    **{name: form for form, name in KERNEL_NAMES.items()},
    CODES: (4, False),
}
_ROWS: Mapping[str, int] = {name: bits for bits, name in ROWS.items()}


@dataclass(frozen=True)
class BlockwiseCall:
    """A matmul of `data` by the table, or its rows at the indices `data`; quantized: whether a
    matmul rounds its left side to 8 bits, None where rows are read.
    """

    data: Any
    table: Blocks
    quantized: bool | None

    @property
    def columns(self) -> int:
        """Columns of a matmul's result, rows of a table."""
        return len(self.table.numbers)


def is_blockwise_matmul(call: Any) -> bool:
    """True if the call is such a matmul."""
    return op_name(call) == "relax.call_tir" and _name(call) in _MATMULS


def _name(call: Any) -> str:
    """The name of the called program, without the number that makes it unique."""
    return str(call.args[0].name_hint).rstrip("0123456789")


def read_blockwise_call(rewriter: CallRewriter, call: Any) -> BlockwiseCall | None:
    """The call as such, None for any other."""
    if op_name(call) != "relax.call_tir":
        return None
    name = _name(call)
    if name not in _MATMULS and name not in _ROWS:
        return None
    data, *others = call.args[1].fields
    constants = [rewriter.constant_of(other) for other in others]
    if any(constant is None for constant in constants):
        return None
    numbers, *others = (constant.value.numpy() for constant in constants)
    scales, zeros, codebook = [*others, None, None, None][:3]
    if name == CODES:
        zeros, codebook = None, zeros
    bits, quantized = _MATMULS.get(name, (_ROWS.get(name, 0), None))
    # The last axis is the depth of a matmul's left side, or that of rows.
    depth = (call.ty_args[0] if quantized is None else data.ty).shape.values[-1]
    if as_int(depth) is None:
        return None
    block = numbers.shape[2] * numbers.itemsize * 8 // bits
    table = Blocks(bits, block, require_int(depth), numbers, scales, zeros, codebook)
    return BlockwiseCall(data, table, quantized)
