"""Small ONNX models, made here."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def dense(width: int = 8, seed: int = 0) -> bytes:
    """y = relu(x @ w): x float32[n,width]."""
    weights = np.random.default_rng(seed).standard_normal((width, width)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], "project"),
        helper.make_node("Relu", ["h"], ["y"], "clip"),
    ]
    return _model(nodes, {"x": ["n", width]}, {"y": ["n", width]}, {"w": weights})


def write_split(folder: Path, seed: int = 0) -> Path:
    """The folder, with `dense` as dense.onnx, whose weights are in dense.onnx.data."""
    folder.mkdir(parents=True, exist_ok=True)
    model = onnx.load_model_from_string(dense(seed=seed))
    onnx.save_model(
        model,
        folder / "dense.onnx",
        save_as_external_data=True,
        location="dense.onnx.data",
        size_threshold=0,
    )
    return folder


def relu(*axes: str | int) -> bytes:
    """y = relu(x): x float32 with these axes."""
    return _model([helper.make_node("Relu", ["x"], ["y"])], {"x": [*axes]}, {"y": [*axes]}, {})


def unsupported_model() -> bytes:
    """Two nodes of an operator that nobody has, and one of a domain that nobody knows, between
    ordinary ones.
    """
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "fine"),
        helper.make_node("Conjure", ["a"], ["b"], "first_oddity", domain="com.example"),
        helper.make_node("Divine", ["b"], ["c"], "second_oddity", domain="com.example"),
        helper.make_node("Conjure", ["c"], ["y"], "third_oddity", domain="com.example"),
    ]
    return _model(nodes, {"x": ["n", 4]}, {"y": ["n", 4]}, {})


def _model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, list[str | int]],
    outputs: dict[str, list[str | int]],
    weights: dict[str, np.ndarray],
) -> bytes:
    graph = helper.make_graph(
        nodes,
        "small",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in inputs.items()
        ],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in outputs.items()
        ],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def encoder(width: int = 32, heads: int = 4, seed: int = 0) -> bytes:
    """A layer of attention and one of two projections over x float32[batch,seq,width], with nodes
    named as exporters do.
    """
    random = np.random.default_rng(seed)

    def weight(*shape: int) -> np.ndarray:
        return (random.standard_normal(shape) / shape[0] ** 0.5).astype(np.float32)

    weights = {f"w_{name}": weight(width, width) for name in ("query", "key", "value", "out")}
    weights |= {"w_up": weight(width, 4 * width), "w_down": weight(4 * width, width)}
    weights["shape"] = np.array([0, 0, heads, width // heads], np.int64)
    weights["flat"] = np.array([0, 0, width], np.int64)
    make, nodes = helper.make_node, []
    for part, order in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3])):
        position = f"/layer.0/attention/{part}"
        nodes += [
            make("MatMul", ["x", f"w_{part}"], [f"{part}_0"], f"{position}/MatMul"),
            make("Reshape", [f"{part}_0", "shape"], [f"{part}_1"], f"{position}/Reshape"),
            make("Transpose", [f"{part}_1"], [part], f"{position}/Transpose", perm=order),
        ]
    nodes += [
        make("MatMul", ["query", "key"], ["scores"], "/layer.0/attention/MatMul"),
        make("Softmax", ["scores"], ["shares"], "/layer.0/attention/Softmax", axis=-1),
        make("MatMul", ["shares", "value"], ["mixed"], "/layer.0/attention/MatMul_1"),
        make("Transpose", ["mixed"], ["m_0"], "/layer.0/attention/Transpose", perm=[0, 2, 1, 3]),
        make("Reshape", ["m_0", "flat"], ["m_1"], "/layer.0/attention/Reshape"),
        make("MatMul", ["m_1", "w_out"], ["attended"], "/layer.0/attention/out/MatMul"),
        make("Add", ["x", "attended"], ["h"], "/layer.0/Add"),
        make("MatMul", ["h", "w_up"], ["up"], "/layer.0/up/MatMul"),
        make("Relu", ["up"], ["act"], "/layer.0/up/Relu"),
        make("MatMul", ["act", "w_down"], ["down"], "/layer.0/down/MatMul"),
        make("Add", ["h", "down"], ["y"], "/layer.0/Add_1"),
    ]
    shape: list[str | int] = ["batch", "seq", width]
    return _model(nodes, {"x": shape}, {"y": shape}, weights)
