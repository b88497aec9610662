"""The model's nodes are followed to the kernels that compute them, whatever they are called."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler import compile_model
from compiler.ir.graph.origins import Origins, position_of
from compiler.isolation.messages import FamiliesJob
from compiler.process.reports import families
from relaxd.contract.request import CompileRequest
from tests.support.models.small import perceptron

NAMES = ("layer.0/MatMul", "layer.0/Relu", "layer.1/MatMul", "layer.1/Add", "head/Softmax")


def named_net(prefix: str = "") -> onnx.ModelProto:
    model = perceptron()
    for node, name in zip(model.graph.node, NAMES, strict=True):
        node.name = prefix + name
    return model


def kernels(path: Path, **declared: Any) -> dict[str, list[str]]:
    request = CompileRequest.of(**declared).to_json()
    listed = families(FamiliesJob(str(path), request, "native"))["kernels"]
    return {kernel["name"]: kernel["nodes"] for kernel in listed}


def test_fused_kernels_name_all_of_their_nodes(tmp_path: Path) -> None:
    onnx.save(named_net(), tmp_path / "m.onnx")
    assert kernels(tmp_path / "m.onnx") == {
        "fused_panel_matmul_relu": ["layer.0/MatMul", "layer.0/Relu"],
        "fused_panel_matmul_add": ["layer.1/MatMul", "layer.1/Add"],
        "softmax": ["head/Softmax"],
    }


def test_nodes_without_a_name_are_called_after_their_output(tmp_path: Path) -> None:
    onnx.save(perceptron(), tmp_path / "m.onnx")
    assert kernels(tmp_path / "m.onnx")["fused_panel_matmul_relu"] == ["inner", "active"]


def test_three_projections_that_become_one_kernel(tmp_path: Path) -> None:
    """Passes replace the bindings of all six nodes by others."""
    value, draw = helper.make_tensor_value_info, np.random.default_rng(0)
    nodes, weights, outputs = [], [], []
    for name in ("query", "key", "value"):
        weight = draw.standard_normal((32, 32)).astype("float32")
        weights += [
            numpy_helper.from_array(weight, f"{name}.w"),
            numpy_helper.from_array(weight[0], f"{name}.b"),
        ]
        nodes += [
            helper.make_node("MatMul", ["x", f"{name}.w"], [f"{name}.p"], f"{name}/MatMul"),
            helper.make_node("Add", [f"{name}.p", f"{name}.b"], [name], f"{name}/Add"),
        ]
        outputs.append(value(name, TensorProto.FLOAT, ["batch", "seq", 32]))
    nodes.append(helper.make_node("Sigmoid", ["query"], ["gate"], "gate/Sigmoid"))
    outputs.append(value("gate", TensorProto.FLOAT, ["batch", "seq", 32]))
    graph = helper.make_graph(
        nodes, "g", [value("x", TensorProto.FLOAT, ["batch", "seq", 32])], outputs, weights
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), tmp_path / "m.onnx")
    by_kernel = kernels(tmp_path / "m.onnx")
    (matmul,) = (nodes for name, nodes in by_kernel.items() if "matmul" in name)
    assert sorted(matmul) == sorted(
        f"{name}/{op}" for name in ("query", "key", "value") for op in ("MatMul", "Add")
    )
    assert [nodes for name, nodes in by_kernel.items() if name.endswith("sigmoid")] == [
        ["gate/Sigmoid"]
    ]


def test_convolutions_that_become_channels_last(tmp_path: Path) -> None:
    """The layout pass writes every binding anew; two convolutions stay two kernels."""
    value, draw = helper.make_tensor_value_info, np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(draw.standard_normal(shape).astype("float32"), name)
        for name, shape in (("w0", (16, 3, 3, 3)), ("w1", (16, 1, 3, 3)))
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c0"], "stem/Conv", pads=[1, 1, 1, 1]),
        helper.make_node("Sigmoid", ["c0"], ["s0"], "stem/Sigmoid"),
        helper.make_node("Conv", ["s0", "w1"], ["c1"], "block/Conv", group=16),
        helper.make_node("Relu", ["c1"], ["r1"], "block/Relu"),
        helper.make_node("GlobalAveragePool", ["r1"], ["y"], "head/Pool"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", TensorProto.FLOAT, ["n", 3, "h", "w"])],
        [value("y", TensorProto.FLOAT, None)],
        weights,
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), tmp_path / "m.onnx")
    nodes_of_kernels = kernels(tmp_path / "m.onnx", dims={"h": "8:64", "w": "8:64"}).values()
    computing = sorted(nodes for nodes in nodes_of_kernels if len(nodes) > 1)
    assert computing == [["block/Conv", "block/Relu"], ["stem/Conv", "stem/Sigmoid"]]
    assert ["head/Pool"] in nodes_of_kernels


def test_nodes_of_a_branch_are_named(tmp_path: Path) -> None:
    value = helper.make_tensor_value_info
    branches = {
        branch: helper.make_graph(
            [helper.make_node(op, ["x"], [f"{op}.out"], f"{branch}/{op}")],
            branch,
            [],
            [value(f"{op}.out", TensorProto.FLOAT, ["n"])],
        )
        for branch, op in (("then_branch", "Exp"), ("else_branch", "Sin"))
    }
    graph = helper.make_graph(
        [helper.make_node("If", ["test"], ["y"], "choice", **branches)],
        "g",
        [value("test", TensorProto.BOOL, []), value("x", TensorProto.FLOAT, ["n"])],
        [value("y", TensorProto.FLOAT, ["n"])],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), tmp_path / "m.onnx")
    nodes_of_kernels = list(kernels(tmp_path / "m.onnx").values())
    assert ["then_branch/Exp"] in nodes_of_kernels
    assert ["else_branch/Sin"] in nodes_of_kernels


def test_names_do_not_reach_the_library(tmp_path: Path) -> None:
    digests = set()
    for prefix in ("", "other/"):
        output = tmp_path / f"out{len(prefix)}"
        compile_model(named_net(prefix), output=output, options={"verify": False, "profile": False})
        digests.add(hashlib.sha256((output / "model.so").read_bytes()).hexdigest())
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("name", "position"),
    [("n3_", 3), ("n3_12", 3), ("n3", None), ("lv3", None), ("n_3", None), ("gv", None)],
)
def test_a_variable_knows_its_node(name: str, position: int | None) -> None:
    assert position_of(name) == position


def test_equal_nodes_share_a_position_and_inner_ones_win() -> None:
    origins = Origins()
    assert origins.hint() == ""
    with origins.inside("outer"):
        first = origins.hint()
        with origins.inside("inner"):
            assert position_of(origins.hint()) == 1
        assert origins.hint() == first == "n0_"
    assert origins.labels == ("outer", "inner")
