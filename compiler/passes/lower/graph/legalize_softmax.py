"""Legalises softmax of float32 with one division a row, as ONNX Runtime has it."""

from typing import Any

from tvm import relax, te, tirx, topi


def legalize_softmax(builder: relax.BlockBuilder, call: Any) -> Any:
    """The tensor program of a `relax.nn.softmax`."""
    axis = int(call.attrs.axis)
    program = _softmax if call.args[0].ty.dtype == "float32" else topi.nn.softmax
    return builder.call_te(program, call.args[0], axis, primfunc_name_hint="softmax")


def _softmax(x: te.Tensor, axis: int) -> te.Tensor:
    greatest = topi.max(x, axis, keepdims=True)
    powers = topi.exp(topi.subtract(x, greatest))
    # Not zero: the greatest element's power is 1.
    inverse = topi.divide(tirx.const(1, "float32"), topi.sum(powers, axis, keepdims=True))
    return topi.multiply(powers, inverse)
