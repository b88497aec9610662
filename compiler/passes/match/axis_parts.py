"""Recognises slices of one axis, as `relax.strided_slice` or as the program that the importers
write for them.
"""

from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from compiler.tir.exprs import as_int, op_name
from compiler.tir.stages import read_copy


@dataclass(frozen=True)
class Part:
    """`count` positions along `axis` from `first` on, all within the axis."""

    axis: int
    first: int
    count: int


def read_part(module: tvm.IRModule, call: Any) -> tuple[Any, Part] | None:
    """The tensor that a call slices, and the slice; None if the call is none or its bounds are only
    known at run time.
    """
    name = op_name(call)
    if name == "relax.strided_slice" and len(call.args) == 4:
        source, firsts = call.args[0], dict(zip(*map(_integers, call.args[1:3]), strict=False))
    elif name == "relax.call_tir" and len(call.args) == 2 and len(call.args[1].fields) == 1:
        source, firsts = call.args[1].fields[0], _shifts(module[call.args[0]])
    else:
        return None
    if not isinstance(source.ty, relax.TensorType) or not isinstance(call.ty, relax.TensorType):
        return None
    shapes = source.ty.shape, call.ty.shape
    if (
        not all(isinstance(shape, relax.ShapeExpr) for shape in shapes)
        or source.ty.ndim != call.ty.ndim
    ):
        return None
    before, after = (list(shape.values) for shape in shapes)
    changed = [
        axis
        for axis in range(len(before))
        if not tvm_ffi.structural_equal(before[axis], after[axis])
    ]
    # A slice of two axes is no part of one; an offset elsewhere would move the other axes.
    if len(changed) != 1 or any(first != 0 for axis, first in firsts.items() if axis != changed[0]):
        return None
    axis = changed[0]
    first, extent, count = firsts.get(axis), as_int(before[axis]), as_int(after[axis])
    # Bounds that are only known at run time may be clamped, as ONNX's Slice does.
    if first is None or extent is None or count is None or not 0 <= first <= extent - count:
        return None
    return source, Part(axis, first, count)


def read_prefix(call: Any) -> tuple[Any, int, Any] | None:
    """The tensor, the axis and the number of positions of a slice that begins at 0 and that its
    writer knows to lie within the axis; None for any other call.
    """
    if op_name(call) != "relax.strided_slice" or not call.attrs.assume_inbound:
        return None
    if len(call.args) != 4 or any(len(operand.fields) != 1 for operand in call.args[1:]):
        return None
    (axis,), (first,) = map(_integers, call.args[1:3])
    if axis is None or first != 0 or not isinstance(call.ty.shape, relax.ShapeExpr):
        return None
    return call.args[0], axis, call.ty.shape.values[axis]


def _integers(values: Any) -> list[int | None]:
    return [as_int(value) for value in values.fields] if isinstance(values, relax.Tuple) else []


def _shifts(func: Any) -> dict[int, int | None]:
    """By axis, the offset at which a program that copies its input reads it, None where the offset
    varies; empty for any other program.
    """
    copied = read_copy(func)
    simplify = tvm.sym.Analyzer().simplify
    return (
        {}
        if copied is None
        else {
            axis: as_int(simplify(index - var))
            for axis, (var, index) in enumerate(zip(*copied, strict=True))
        }
    )
