"""Recognises the importers' matmuls by matrices of few bits, and reads of their rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from compiler.ir.ops.quantized.block_matmul import PRODUCTS, ROWS, Blocks
from compiler.passes.match.rewriting import constant_of
from compiler.tir.exprs import as_int, fixed, op_name

_PRODUCTS: Mapping[str, tuple[int, bool]] = {name: form for form, name in PRODUCTS.items()}
_ROWS: Mapping[str, int] = {name: bits for bits, name in ROWS.items()}


@dataclass(frozen=True)
class NBitsCall:
    """A matmul of `given` by the table, or its rows at the indices `given`; rounded: whether the
    left side of a matmul is rounded to 8 bits, None where rows are read.
    """

    given: Any
    table: Blocks
    rounded: bool | None

    @property
    def columns(self) -> int:
        """Columns of a matmul's result, rows of a table."""
        return len(self.table.numbers)


def is_product(call: Any) -> bool:
    """Whether the call is such a matmul."""
    return op_name(call) == "relax.call_tir" and _name(call) in _PRODUCTS


def _name(call: Any) -> str:
    """Of the program that is called, without the number that tells it from others."""
    return str(call.args[0].name_hint).rstrip("0123456789")


def read_nbits_call(rewriter: Any, call: Any) -> NBitsCall | None:
    """The call as such, None for any other."""
    if op_name(call) != "relax.call_tir":
        return None
    name = _name(call)
    if name not in _PRODUCTS and name not in _ROWS:
        return None
    given, *others = call.args[1].fields
    found = [constant_of(rewriter, other) for other in others]
    if any(constant is None for constant in found):
        return None
    numbers, *others = (constant.value.numpy() for constant in found)
    scales, zero = [*others, None, None][:2]
    bits, rounded = _PRODUCTS.get(name, (_ROWS.get(name, 0), None))
    # The last axis is the depth of a matmul's left side, or that of rows.
    depth = (call.ty_args[0] if rounded is None else given.ty).shape.values[-1]
    if as_int(depth) is None:
        return None
    block = numbers.shape[2] * numbers.itemsize * 8 // bits
    return NBitsCall(given, Blocks(bits, block, fixed(depth), numbers, scales, zero), rounded)
