"""Recognises repeats of one axis, each place several times in a row: exporters write them for query
heads that share keys.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx

from compiler.tir.exprs import as_int, op_name
from compiler.tir.stages import read_copy


@dataclass(frozen=True)
class Repeat:
    """Each place of `axis` is repeated `times` times; the axis behind it has extent 1."""

    axis: int
    times: int


def read_repeat(
    module: tvm.IRModule, bound: Callable[[Any], Any], call: Any
) -> tuple[Any, Repeat] | None:
    """The tensor [.., g, 1, ..] that a call repeats and reshapes to [.., g * times, ..], else None.

    bound: returns the call that a variable is bound to, None for any other expression.
    """
    if op_name(call) != "relax.reshape":
        return None
    repeated = bound(call.args[0])
    if op_name(repeated) != "relax.call_tir" or len(repeated.args) != 2:
        return None
    # Dims that no axis has for an extent are given beside the tensor.
    source, *others = repeated.args[1].fields
    if any(isinstance(other.ty, relax.TensorType) for other in others):
        return None
    axis = _repeated_axis(module[repeated.args[0]])
    shapes = [tensor.ty.shape for tensor in (source, repeated, call)]
    if axis is None or not all(isinstance(shape, relax.ShapeExpr) for shape in shapes):
        return None
    before, after, joined = (list(shape.values) for shape in shapes)
    times = as_int(after[axis])
    if axis == 0 or times is None or as_int(before[axis]) != 1:
        return None
    wanted = [
        *before[: axis - 1],
        before[axis - 1] * tirx.IntImm("int64", times),
        *before[axis + 1 :],
    ]
    # The reshape must join the repeats to the axis before them, and nothing else.
    same = len(wanted) == len(joined) and all(
        map(tvm.sym.Analyzer().can_prove_equal, wanted, joined)
    )
    return (source, Repeat(axis - 1, times)) if same else None


def _repeated_axis(func: Any) -> int | None:
    """The axis along which a program reads its input at 0 while it copies all others unchanged;
    None for any other program.
    """
    copied = read_copy(func)
    if copied is None:
        return None
    variables, read = copied
    others = [
        axis
        for axis, (var, index) in enumerate(zip(variables, read, strict=True))
        if not index.same_as(var)
    ]
    return others[0] if len(others) == 1 and as_int(read[others[0]]) == 0 else None
