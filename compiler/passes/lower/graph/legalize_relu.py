"""Legalises relu so that a NaN stays one, as ONNX and torch have it."""

from typing import Any

from tvm import relax, te, tirx


def legalize_relu(builder: relax.BlockBuilder, call: Any) -> Any:
    """The tensor program of a `relax.nn.relu`."""

    def relu(x: te.Tensor) -> te.Tensor:
        # Of an unordered pair TVM's maximum is the second one.
        return te.compute(x.shape, lambda *i: tirx.max(tirx.const(0, x.dtype), x(*i)), name="relu")

    return builder.call_te(relu, call.args[0], primfunc_name_hint="relu")
