"""A net that spots keywords, of the size of MLPerf Tiny's: a separable convolutional net over 49
frames of 10 coefficients, of 8-bit integers in the QDQ format.

Its weights are drawn: what it takes does not depend on what it has learned.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

FRAMES, COEFFICIENTS, CHANNELS, WORDS, BLOCKS = 49, 10, 64, 12, 4


class _Draft:
    """A net as it grows."""

    def __init__(self) -> None:
        self.draw = np.random.default_rng(7)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, *shape: int) -> str:
        fan = float(np.prod(shape[1:])) if len(shape) > 1 else 100.0
        values = self.draw.standard_normal(shape) * np.sqrt(2 / fan)
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def conv(self, x: str, shape: tuple[int, ...], **attributes: object) -> str:
        inputs = [x, self.weight(*shape), self.weight(shape[0])]
        return self.node("Relu", [self.node("Conv", inputs, **attributes)])

    def node(self, operator: str, inputs: list[str], **attributes: object) -> str:
        out = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [out], **attributes))
        return out


def float_net() -> onnx.ModelProto:
    """The net in float32."""
    draft = _Draft()
    x = draft.conv("x", (CHANNELS, 1, 10, 4), strides=[2, 2], pads=[4, 1, 5, 1])
    for _ in range(BLOCKS):
        x = draft.conv(x, (CHANNELS, 1, 3, 3), group=CHANNELS, pads=[1, 1, 1, 1])
        x = draft.conv(x, (CHANNELS, CHANNELS, 1, 1))
    x = draft.node("Flatten", [draft.node("GlobalAveragePool", [x])])
    x = draft.node("Gemm", [x, draft.weight(WORDS, CHANNELS), draft.weight(WORDS)], transB=1)
    draft.nodes.append(helper.make_node("Softmax", [x], ["scores"]))
    shape: list[int | str] = ["n", 1, FRAMES, COEFFICIENTS]
    graph = helper.make_graph(
        draft.nodes,
        "keywords",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, ["n", WORDS])],
        draft.weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


class _Samples(CalibrationDataReader):
    def __init__(self) -> None:
        draw = np.random.default_rng(11)
        shape = (1, 1, FRAMES, COEFFICIENTS)
        self._samples: Iterator[dict[str, np.ndarray]] = iter(
            [{"x": draw.standard_normal(shape).astype(np.float32)} for _ in range(16)]
        )

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._samples, None)


def write(path: Path) -> Path:
    """Write the net with 8-bit weights and activations, and give the path."""
    with tempfile.TemporaryDirectory() as workspace:
        full = Path(workspace, "float.onnx")
        onnx.save(float_net(), full)
        quantize_static(
            str(full),
            str(path),
            _Samples(),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
            per_channel=True,
        )
    return path
