"""The model that the reference runs, and its engine."""

from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from compiler.verify.reference.onnx import (
    ENGINES,
    ONNX,
    ORDERED,
    OnnxRuntime,
    engines_of,
    prepare,
)
from relaxd.contract.request import CompileRequest


def zip_map() -> onnx.ModelProto:
    """Probabilities as skl2onnx gives them unless asked not to."""
    node = helper.make_node(
        "ZipMap", ["x"], ["maps"], domain="ai.onnx.ml", classlabels_int64s=[0, 1]
    )
    kind = helper.make_map_type_proto(
        onnx.TensorProto.INT64, helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [])
    )
    output = helper.make_value_info("maps", helper.make_sequence_type_proto(kind))
    graph = helper.make_graph(
        [node], "zip", [helper.make_tensor_value_info("x", 1, ["n", 2])], [output]
    )
    opsets = [helper.make_opsetid("ai.onnx.ml", 3), helper.make_opsetid("", 19)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def test_maps_are_given_as_the_tensor_they_are_made_of(tmp_path: Path) -> None:
    path = prepare(zip_map(), tmp_path / "model.onnx", CompileRequest.of(), tmp_path).path
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    for name in ONNX:
        np.testing.assert_array_equal(ENGINES[name](str(path)).run({"x": x}, {})["maps"], x)


def test_trees_are_added_up_in_their_order() -> None:
    model = zip_map()
    assert engines_of(model) == ONNX
    model.graph.node[0].op_type = "TreeEnsembleRegressor"
    assert engines_of(model) == ORDERED


def test_what_pads_a_greatest_element_counts(tmp_path: Path) -> None:
    """ONNX Runtime's own optimiser leaves the zeros out, and gives -1 everywhere."""
    nodes = [
        helper.make_node("Pad", ["x", "pads", "value"], ["padded"]),
        helper.make_node("MaxPool", ["padded"], ["y"], kernel_shape=[3, 3], strides=[2, 2]),
    ]
    constants = [
        onnx.numpy_helper.from_array(np.array([0, 0, 1, 1, 0, 0, 1, 1]), "pads"),
        onnx.numpy_helper.from_array(np.zeros((), np.float32), "value"),
    ]
    x, y = (
        helper.make_tensor_value_info(name, 1, [1, 1, size, size])
        for name, size in (("x", 4), ("y", 2))
    )
    graph = helper.make_graph(nodes, "padded", [x], [y], constants)
    opsets = [helper.make_opsetid("", 19)]
    model = str(tmp_path / "model.onnx")
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), model)
    feeds = {"x": np.full((1, 1, 4, 4), -1, np.float32)}
    wanted = np.array([[[[0, 0], [0, -1]]]], np.float32)
    for name in ONNX:
        np.testing.assert_array_equal(ENGINES[name](model).run(feeds, {})["y"], wanted)


def test_rows_up_to_a_negative_number_are_none(tmp_path: Path) -> None:
    """ONNX Runtime's extended optimisations slice, with an end that counts from the axis's end."""
    nodes = [
        helper.make_node("Range", ["zero", "k", "one"], ["positions"]),
        helper.make_node("Gather", ["x", "positions"], ["y"]),
    ]
    constants = [
        onnx.numpy_helper.from_array(np.array(value), name)
        for name, value in (("zero", 0), ("one", 1))
    ]
    infos = [
        helper.make_tensor_value_info("x", 1, [5, 2]),
        helper.make_tensor_value_info("k", 7, []),
    ]
    outputs = [helper.make_tensor_value_info("y", 1, ["rows", 2])]
    graph = helper.make_graph(nodes, "rows", infos, outputs, constants)
    opsets = [helper.make_opsetid("", 19)]
    model = str(tmp_path / "model.onnx")
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), model)
    feeds = {"x": np.zeros((5, 2), np.float32), "k": np.array(-1)}
    for quantized in (False, True):
        assert OnnxRuntime(model, quantized).run(feeds, {})["y"].shape == (0, 2)
