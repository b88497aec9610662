"""Brings matmuls with constant weights into the form [rows, depth] by [columns, depth], which both
GPU kernels for matmuls take.
"""

from dataclasses import dataclass
from functools import reduce
from operator import mul
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, te

from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.match.rewriting import FUSABLE, CallRewriter, is_weight, rewrite_functions
from compiler.tir.exprs import op_name

_ELEMENTWISE = frozenset(
    f"relax.{name}"
    for name in (
        *("add", "subtract", "multiply", "divide", "maximum", "minimum", "power"),
        *("erf", "exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "abs", "negative"),
        *("nn.relu", "nn.gelu", "nn.gelu_tanh", "nn.silu"),
    )
)


@dataclass(frozen=True)
class FlattenRows(ModulePass):
    """Rewrites `matmul(x[..., K], constant [K, N])` to one axis of rows, with the weight transposed
    at compile time.

    Elementwise operators behind the matmul work on the flat form too, so that FuseOps still joins
    them to it. Every other consumer reads the result through a reshape, which moves no data.
    """

    name = "flatten_rows"
    phase = Phase.PACK

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every Relax function."""
        return rewrite_functions(_Rewriter(module))


@relax.expr_functor.mutator
class _Rewriter(CallRewriter):
    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self.transposed: dict[int, Any] = {}

    def rewrite(self, call: Any) -> Any:
        flat = self._flat(call)
        return call if flat is None or call.ty.ndim == 2 else relax.op.reshape(flat, call.ty.shape)

    def _flat(self, call: Any) -> Any:
        if op_name(call) == "relax.matmul":
            return self._matmul(call)
        return self._elementwise(call) if op_name(call) in _ELEMENTWISE else None

    def _matmul(self, call: Any) -> Any:
        left, right = call.args[0], self.constant_of(call.args[1])
        if not is_weight(right) or str(left.ty.dtype) != "float32" or left.ty.ndim < 2:
            return None
        rows = left if left.ty.ndim == 2 else self._rows_of(left)
        matmul = self.builder_.call_te(
            _matmul,
            rows,
            self._transpose(right),
            primfunc_name_hint="product",
            primfunc_attrs=FUSABLE,
        )
        # Two axes are rows and depth already.
        return matmul if call.ty.ndim == 2 else self.builder_.emit(matmul)

    def _twin(self, value: Any) -> Any:
        """The flat form of `value`, if `value` is a reshape of it."""
        source = self.value_of(value)
        if op_name(source) != "relax.reshape":
            return None
        flat = source.args[0]
        return flat if tvm_ffi.structural_equal(flat.ty.shape, flat_shape(value)) else None

    def _rows_of(self, value: Any) -> Any:
        """`value` with its leading axes as one."""
        twin = self._twin(value)
        return (
            twin
            if twin is not None
            else self.builder_.emit(relax.op.reshape(value, flat_shape(value)))
        )

    def _elementwise(self, call: Any) -> Any:
        """Emits the operator on flat operands if one operand has a flat form, and the others have
        its shape or vary along its last axis only.
        """
        leader = next((arg for arg in call.args if self._twin(arg) is not None), None)
        if (
            leader is None
            or call.ty.ndim == 2
            or not tvm_ffi.structural_equal(call.ty.shape, leader.ty.shape)
        ):
            return None
        operands = [self._operand(arg, leader) for arg in call.args]
        if any(operand is None for operand in operands):
            return None
        return self.builder_.emit(tvm.ir.Call(call.op, operands, attrs=call.attrs))

    def _operand(self, value: Any, leader: Any) -> Any:
        shape, wanted = value.ty.shape, leader.ty.shape
        if shape is None:
            return None
        if shape.values and all(
            getattr(extent, "value", None) == 1 for extent in list(shape.values)[:-1]
        ):
            return value if len(shape.values) <= 2 else None
        if not shape.values:
            return value
        return self._rows_of(value) if tvm_ffi.structural_equal(shape, wanted) else None

    def _transpose(self, weight: Any) -> Any:
        # Layers that share a weight share its transpose.
        key = weight.__chandle__()
        if key not in self.transposed:
            self.transposed[key] = (
                weight,
                relax.const(np.ascontiguousarray(weight.value.numpy().T)),
            )
        return self.transposed[key][1]


def flat_shape(value: Any) -> Any:
    """A tensor's shape with its leading axes as one."""
    *lead, depth = value.ty.shape.values
    return relax.ShapeExpr([reduce(mul, lead), depth])


def _matmul(left: Any, right: Any) -> Any:
    k = te.reduce_axis((0, right.shape[1]), name="k")
    return te.compute(
        (left.shape[0], right.shape[0]),
        lambda i, j: te.sum(left[i, k] * right[j, k], axis=k),
        name="product",
    )
