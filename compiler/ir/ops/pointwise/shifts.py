"""Shifts of integers by run-time amounts: LLVM leaves open what one beyond the width gives."""

from typing import Any

import numpy as np
from tvm import tirx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.ops.pointwise import programs as pw


def shift(b: Builder, x: Value, y: Value, *, left: bool) -> Value:
    """x shifted by y bits, both of one integer dtype; an amount out of [0, width) leaves 0, or the
    sign's -1 to the right.
    """
    width, signed = np.dtype(x.dtype).itemsize * 8, not x.dtype.startswith("uint")

    def shifted(value: Any, amount: Any) -> Any:
        bad = amount >= pw.like(amount, width)
        if signed:
            bad = tirx.Or(bad, amount < pw.like(amount, 0))
        near = tirx.Select(bad, pw.like(amount, 0 if left else width - 1), amount)
        if left:
            return tirx.Select(bad, pw.like(value, 0), value << near)
        moved = value >> near
        return moved if signed else tirx.Select(bad, pw.like(value, 0), moved)

    return pw.pointwise(b, shifted, x, y, name="bit_shift")
