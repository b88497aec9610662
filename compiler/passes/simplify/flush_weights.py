"""Replaces by zeros the subnormal weights that training with weight decay leaves: processors of
Intel's take some hundred cycles for an operation that reads or writes a subnormal number.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from compiler.ir.arrays import allocate, as_constant, values_of
from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.match.rewriting import CallRewriter, rewrite_functions
from compiler.tir.exprs import op_name

_MATMULS = frozenset(
    f"relax.{name}"
    for name in (
        "matmul",
        "nn.conv1d",
        "nn.conv2d",
        "nn.conv3d",
        "nn.conv1d_transpose",
        "nn.conv2d_transpose",
        "nn.conv3d_transpose",
    )
)
_SCALES = frozenset(("relax.add", "relax.subtract", "relax.multiply"))
"""What scales the results of products and shifts them, as a bias does."""

_EXPONENT, _MAGNITUDE = np.uint32(0x7F80_0000), np.uint32(0x7FFF_FFFF)
_AT_ONCE = 1 << 18
"""Elements of a weight that are looked at together, which rest in a cache."""


@dataclass(frozen=True)
class FlushWeights(ModulePass):
    """Replaces float32 weights of matmuls and convolutions, and what scales or shifts the results
    of these, by the same without subnormal numbers.

    A weight below 2^-126 adds less than that, times an input, to a result. An infinite input times
    such a weight is infinite before and NaN after. Constants elsewhere keep theirs: log(x + 1e-45)
    needs it.
    """

    name = "flush_weights"
    phase = Phase.GRAPH

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every Relax function."""
        return rewrite_functions(_Rewriter(module))


@relax.expr_functor.mutator
class _Rewriter(CallRewriter):
    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        # By address, with the node: without a reference to it an address would be used again.
        self._flushed: dict[int, tuple[Any, Any]] = {}
        self._products: dict[int, tuple[Any, bool]] = {}

    def rewrite(self, call: Any) -> Any:
        if not self._is_scaled_matmul(call):
            return call
        operands = [self._flush(argument) for argument in call.args]
        if all(new.same_as(old) for new, old in zip(operands, call.args, strict=True)):
            return call
        return relax.Call(call.op, operands, call.attrs, call.ty_args)

    def _is_scaled_matmul(self, value: Any) -> bool:
        """True for the result of such an operator, scaled and shifted by constants."""
        if isinstance(value, relax.Var):
            # Operands of what was asked for before are known, however long a chain is.
            key = value.__chandle__()
            if key not in self._products:
                self._products[key] = value, self._is_scaled_matmul(self.lookup_binding(value))
            return self._products[key][1]
        name = op_name(value)
        if name not in _SCALES:
            return name in _MATMULS
        known = [self.constant_of(operand) is not None for operand in value.args]
        return any(known) and any(map(self._is_scaled_matmul, value.args))

    def _flush(self, operand: Any) -> Any:
        constant = self.constant_of(operand)
        if constant is None or str(constant.ty.dtype) != "float32":
            return operand
        key = constant.__chandle__()
        if key not in self._flushed:
            weight = values_of(constant)
            flushed = _without_subnormals(weight) if _has_subnormals(weight) else None
            self._flushed[key] = constant, flushed
        _, flushed = self._flushed[key]
        return operand if flushed is None else flushed


def _without_subnormals(weight: np.ndarray) -> Any:
    """A constant of the weight, with zeros of the same sign in place of subnormal numbers."""
    array = allocate(weight.shape)
    np.multiply(weight, np.abs(weight) >= np.finfo(np.float32).tiny, out=array)
    return as_constant(array)


def _has_subnormals(weight: np.ndarray) -> bool:
    bits = np.ascontiguousarray(weight).reshape(-1).view(np.uint32)
    for first in range(0, bits.size, _AT_ONCE):
        part = bits[first : first + _AT_ONCE]
        small = part[(part & _EXPONENT) == 0]
        if small.size and np.any(small & _MAGNITUDE):
            return True
    return False
