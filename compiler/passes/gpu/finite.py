"""Replaces infinities by the greatest finite numbers, for languages that have no infinity."""

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import tvm_ffi
from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.framework.base import Phase
from compiler.passes.framework.programs import ProgramPass
from compiler.tir.exprs import dtype_of


@dataclass(frozen=True)
class FiniteLimits(ProgramPass):
    """Replaces infinite constants of tensor programs by the greatest finite numbers of their types.

    The maximum and the softmax of values among which there is a finite one stay as they are. A row
    of which every value is masked by an infinity gives equal shares where it gave NaN.
    """

    name = "finite_limits"
    phase = Phase.TENSOR_PROGRAMS

    def rewrite(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """A program without an infinity stays the same object."""
        constants: list[Any] = []
        tvm_ffi.structural_walk(func, (prim.FloatImm, constants.append))
        if not any(math.isinf(constant.value) for constant in constants):
            return func
        finite: tirx.PrimFunc = tvm_ffi.structural_map(func, ((prim.FloatImm, _limit),))
        return finite


def _limit(constant: Any) -> Any:
    if not math.isinf(constant.value):
        return constant
    dtype = dtype_of(constant)
    greatest = float(ml_dtypes.finfo(dtype).max)
    return prim.FloatImm(dtype, math.copysign(greatest, constant.value))
