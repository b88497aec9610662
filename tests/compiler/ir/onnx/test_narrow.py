"""Constants of 2 and 4 bits: weights that are dequantised in blocks, and what else would
read them.
"""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from compiler.errors import ImportFailed
from tests.compiler.ir.onnx.running import assert_close, build, normal

NODE = helper.make_node
LOW = {TensorProto.INT4: -8, TensorProto.UINT4: 0, TensorProto.INT2: -2, TensorProto.UINT2: 0}


def packed(kind: int, shape: tuple[int, ...], name: str) -> tuple[onnx.TensorProto, np.ndarray]:
    """A tensor of every value of a type in turn, and the values."""
    count = 16 if kind in (TensorProto.INT4, TensorProto.UINT4) else 4
    values = np.resize(np.arange(LOW[kind], LOW[kind] + count), shape)
    return helper.make_tensor(name, kind, shape, values.reshape(-1).tolist()), values


def model_of(nodes: list[onnx.NodeProto], initializers: list[onnx.TensorProto]) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 6])
    outputs = [helper.make_empty_tensor_value_info(nodes[-1].output[0])]
    graph = helper.make_graph(nodes, "narrow", [x], outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=12)


@pytest.mark.parametrize("kind", LOW)
def test_weights_in_blocks(kind: int) -> None:
    weight, values = packed(kind, (6, 5), "w")
    zero, zeros = packed(kind, (2, 5), "z")
    scales = np.abs(normal(2, 5))
    scale = onnx.numpy_helper.from_array(scales, "s")
    nodes = [
        NODE("DequantizeLinear", ["w", "s", "z"], ["real"], axis=0, block_size=3),
        NODE("MatMul", ["x", "real"], ["y"]),
    ]
    built = build(model_of(nodes, [weight, scale, zero]))
    real = (values - zeros.repeat(3, 0)) * scales.repeat(3, 0)
    for n in (1, 4):
        x = normal(n, 6)
        assert_close(built.run({"x": x}), [(x @ real).astype(np.float32)], ["y"])


def test_a_grid_of_such_a_type_is_refused() -> None:
    """Its results would have to saturate to 4 bits."""
    zero, _ = packed(TensorProto.INT4, (1,), "z")
    scale = onnx.numpy_helper.from_array(np.ones(1, np.float32), "s")
    nodes = [
        NODE("QuantizeLinear", ["x", "s", "z"], ["q"]),
        NODE("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    with pytest.raises(ImportFailed, match="INT4"):
        build(model_of(nodes, [zero, scale]))
