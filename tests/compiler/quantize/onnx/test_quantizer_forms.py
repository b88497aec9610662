"""Small models as ONNX Runtime's quantizer writes them, form by form: weights stay as small as in
its file, and results are ONNX Runtime's, as the table of docs/explanation/quantization.md says.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

from compiler.bundle.weights import separate
from compiler.ir import import_model
from compiler.passes.manager import lower
from compiler.quantize.onnx.dequantized_weights import keep_weights_quantized
from compiler.quantize.onnx.integer_operands import multiply_integers
from relaxd.contract.request import CompileRequest
from tests.compiler.ir.onnx.running import Arrays, model_of, normal, session_of
from tests.compiler.passes import lowered
from tests.support.geometries import has_int8, host

NODE = helper.make_node
LEAST = 4096
"""Elements of a weight that is large."""


class Reader(CalibrationDataReader):
    """Samples for calibration."""

    def __init__(self, feeds: list[Arrays]) -> None:
        self.feeds = iter(feeds)

    def get_next(self) -> Any:
        return next(self.feeds, None)


def weights(*shape: int) -> np.ndarray:
    return normal(*shape) / np.float32(8)


IMAGE, ROWS, STEPS = "float32[n,32,h,v]", "float32[n,128]", "float32[s,n,64]"
MODELS: dict[str, tuple[onnx.NodeProto, str, dict[str, np.ndarray]]] = {
    "Conv": (NODE("Conv", ["x", "w", "b"], ["y"], pads=[1] * 4), IMAGE,
             {"w": weights(32, 32, 3, 3), "b": weights(32)}),
    "Conv of groups": (NODE("Conv", ["x", "w", "b"], ["y"], group=2), IMAGE,
                       {"w": weights(32, 16, 3, 3), "b": weights(32)}),
    "ConvTranspose": (NODE("ConvTranspose", ["x", "w", "b"], ["y"], strides=[2, 2]), IMAGE,
                      {"w": weights(32, 32, 2, 2), "b": weights(32)}),
    "MatMul": (NODE("MatMul", ["x", "w"], ["y"]), ROWS, {"w": weights(128, 96)}),
    "Gemm": (NODE("Gemm", ["x", "w", "b"], ["y"], transB=1), ROWS,
             {"w": weights(96, 128), "b": weights(96)}),
    "LSTM": (NODE("LSTM", ["x", "w", "r", "b"], ["y"], hidden_size=64), STEPS,
             {"w": weights(1, 256, 64), "r": weights(1, 256, 64), "b": weights(1, 512)}),
    "GRU": (NODE("GRU", ["x", "w", "r", "b"], ["y"], hidden_size=64), STEPS,
            {"w": weights(1, 192, 64), "r": weights(1, 192, 64), "b": weights(1, 384)}),
}  # fmt: skip


def feeds_of(inputs: str) -> list[Arrays]:
    sizes = ({"n": 1, "s": 3, "h": 3, "v": 5}, {"n": 3, "s": 7, "h": 8, "v": 7})
    axes = inputs[inputs.index("[") + 1 : -1].split(",")
    return [{"x": normal(*(size.get(axis) or int(axis) for axis in axes))} for size in sizes]


Quantize = Callable[[onnx.ModelProto, str, list[Arrays]], None]


def statically(
    form: QuantFormat, activations: QuantType, kind: QuantType, per_channel: bool
) -> Quantize:
    def quantize(model: onnx.ModelProto, path: str, feeds: list[Arrays]) -> None:
        quantize_static(
            model,
            path,
            Reader(feeds),
            quant_format=form,
            activation_type=activations,
            weight_type=kind,
            per_channel=per_channel,
            op_types_to_quantize=[model.graph.node[0].op_type],
            extra_options={"UseQDQContribOps": True},
        )

    return quantize


def dynamically(model: onnx.ModelProto, path: str, feeds: list[Arrays]) -> None:
    quantize_dynamic(model, path, weight_type=QuantType.QInt8, per_channel=True)


KINDS = QuantType
qdq, operators = (partial(statically, form) for form in (QuantFormat.QDQ, QuantFormat.QOperator))
FORMS: dict[str, tuple[Quantize, tuple[str, ...]]] = {
    "dynamic": (dynamically, ("Conv", "Conv of groups", "MatMul", "LSTM")),
    "QOperator": (
        operators(KINDS.QUInt8, KINDS.QInt8, True),
        ("Conv", "Conv of groups", "MatMul", "Gemm"),
    ),
    "QDQ by channel": (
        qdq(KINDS.QInt8, KINDS.QInt8, True),
        ("Conv", "Conv of groups", "ConvTranspose", "MatMul", "Gemm"),
    ),
    "QDQ by tensor": (
        qdq(KINDS.QUInt8, KINDS.QInt8, False),
        ("ConvTranspose", "LSTM", "GRU"),
    ),
    "16-bit activations": (
        qdq(KINDS.QUInt16, KINDS.QInt8, True),
        ("Conv", "Conv of groups", "MatMul", "Gemm"),
    ),
    "4-bit weights": (qdq(KINDS.QUInt8, KINDS.QInt4, True), ("Conv", "MatMul", "Gemm")),
}
CASES = [(form, name) for form, (_, names) in FORMS.items() for name in names]


@pytest.mark.parametrize(("form", "name"), CASES)
def test_weights_stay_integers_and_results_the_same(form: str, name: str, tmp_path: Path) -> None:
    node, inputs, constants = MODELS[name]
    model, path = model_of([node], {"x": inputs}, constants, outputs=["y"]), tmp_path / "q.onnx"
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    feeds = feeds_of(inputs)
    FORMS[form][0](model, str(path), feeds)
    quantized = onnx.load(path)
    assert {one.op_type for one in quantized.graph.node} != {node.op_type}
    rewritten = keep_weights_quantized(multiply_integers(quantized))
    dims = {axis: (1, None) for axis in "nshv" if axis in inputs.split("[")[1]}
    built, session = lowered.build(rewritten, dims, host()), session_of(quantized)
    for feed in feeds:
        (got,), (want,) = built.run(feed), session.run(None, dict(feed))
        apart, size = (np.sqrt(np.mean(np.square(each))) for each in (got - want, want))
        # A value near a tie may be quantized to the other neighbour; ONNX Runtime itself quantizes
        # what int4 matrices multiply.
        assert apart <= (0.02 if form == "4-bit weights" else 0.005) * size
    imported = import_model(rewritten, CompileRequest.of(dims=dims))
    parts = separate(lower(imported.module, host(), imported.ranges), smallest=LEAST).constants
    large = {one.numpy().dtype for one in parts if one.numpy().size >= LEAST // 2}
    assert np.dtype(np.float32) not in large or not has_int8()
    assert large
