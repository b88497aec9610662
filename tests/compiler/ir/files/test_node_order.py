"""Models whose nodes are out of order."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from compiler.errors import LoadError
from compiler.ir.files.model_file import read_model
from compiler.ir.files.node_order import sort_nodes
from tests.compiler.ir.onnx.running import assert_like_onnxruntime, model_of

NODE = helper.make_node


def sorted_outputs(model: onnx.ModelProto) -> list[str]:
    sort_nodes(model)
    return [node.output[0] for node in model.graph.node]


def test_a_file_whose_nodes_are_out_of_order(tmp_path: Path) -> None:
    nodes = [
        NODE("Exp", ["b"], ["y"]),
        NODE("Neg", ["a"], ["b"]),
        NODE("Sqrt", ["x"], ["unused"]),
        NODE("Relu", ["x"], ["a"]),
    ]
    model = model_of(nodes, {"x": "float32[n,3]"}, outputs=["y"])
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    read = read_model(path).proto
    assert [node.output[0] for node in read.graph.node] == ["unused", "a", "b", "y"]
    feeds = [{"x": np.random.default_rng(0).normal(size=(n, 3)).astype("f4")} for n in (0, 1, 5)]
    assert_like_onnxruntime(read, feeds)


@given(st.permutations(range(6)))
def test_what_is_in_order_stays_and_the_rest_comes_as_early_as_it_can(order: list[int]) -> None:
    chain = [NODE("Neg", [f"v{i}"], [f"v{i + 1}"]) for i in range(3)]
    free = [NODE("Neg", ["v0"], [f"w{i}"]) for i in range(3)]
    nodes = [(chain + free)[i] for i in order]
    outputs = sorted_outputs(model_of(nodes, {"v0": "float32[n]"}))
    assert sorted(outputs) == ["v1", "v2", "v3", "w0", "w1", "w2"]
    assert [name for name in outputs if name.startswith("v")] == ["v1", "v2", "v3"]
    given_order = [node.output[0] for node in nodes]
    in_order = [name for name in given_order if name.startswith("v")] == ["v1", "v2", "v3"]
    assert not in_order or outputs == given_order


def branch(name: str, *nodes: onnx.NodeProto) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), name, [], [helper.make_empty_tensor_value_info("y")])


def test_what_a_branch_reads_comes_before_it() -> None:
    """The branches name their results as the node does its own."""
    then = branch("then", NODE("Neg", ["late"], ["y"]), NODE("Relu", ["a"], ["late"]))
    other = branch("else", NODE("Abs", ["a"], ["y"]))
    nodes = [
        NODE("If", ["c"], ["y"], then_branch=then, else_branch=other),
        NODE("Exp", ["x"], ["a"]),
    ]
    model = model_of(nodes, {"x": "float32[n]", "c": "bool[]"}, outputs=["y"])
    assert sorted_outputs(model) == ["a", "y"]
    (inner,) = [one.g for one in model.graph.node[1].attribute if one.name == "then_branch"]
    assert [node.output[0] for node in inner.node] == ["late", "y"]
    x = np.array([0.5, -1], "f4")
    assert_like_onnxruntime(model, [{"x": x, "c": np.array(flag)} for flag in (True, False)])


def test_functions_too() -> None:
    body = [NODE("Neg", ["b"], ["c"]), NODE("Exp", ["a"], ["b"])]
    function = helper.make_function("f", "Late", ["a"], ["c"], body, [helper.make_opsetid("", 19)])
    model = model_of([NODE("Late", ["x"], ["y"], domain="f")], {"x": "float32[n]"})
    model.functions.append(function)
    sort_nodes(model)
    assert [node.op_type for node in model.functions[0].node] == ["Exp", "Neg"]


@pytest.mark.parametrize(
    ("nodes", "circle"),
    [
        ([NODE("Neg", ["y"], ["y"], name="own")], "own"),
        (
            [
                NODE("Relu", ["x"], ["free"]),
                NODE("Add", ["x", "b"], ["a"], name="first"),
                NODE("Neg", ["a"], ["b"], name="second"),
                NODE("Neg", ["b"], ["y"], name="behind"),
            ],
            "second, first",
        ),
    ],
)
def test_a_circle_names_its_nodes(nodes: list[onnx.NodeProto], circle: str) -> None:
    with pytest.raises(LoadError, match=f"in a circle: {circle} [(]") as caught:
        sort_nodes(model_of(nodes, {"x": "float32[n]"}))
    assert caught.value.code == "load.cycle"
    assert caught.value.failure.node == circle.partition(",")[0]
