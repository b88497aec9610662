"""Sequences and optional values, taken apart at import."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from compiler.errors import ImportFailed
from tests.compiler.ir.onnx.running import (
    Built,
    assert_close,
    assert_like_onnxruntime,
    build,
    model_of,
    normal,
)

NODE = helper.make_node
FLOATS = helper.make_tensor_type_proto(TensorProto.FLOAT, None)


def index_of(position: int) -> np.ndarray:
    return np.array(position, np.int64)


def test_construct_insert_erase_and_take() -> None:
    nodes = [
        NODE("SequenceEmpty", [], ["e"]),
        NODE("SequenceConstruct", ["x", "y"], ["s"]),
        NODE("SequenceInsert", ["s", "x", "zero"], ["t"]),
        NODE("SequenceInsert", ["t", "y", "last"], ["u"]),
        NODE("SequenceErase", ["u", "one"], ["v"]),
        NODE("SequenceErase", ["v"], ["w"]),
        NODE("SequenceInsert", ["e", "x"], ["f"]),
        NODE("SequenceLength", ["w"], ["count"]),
        NODE("SequenceAt", ["w", "last"], ["second"]),
        NODE("SequenceAt", ["f", "zero"], ["only"]),
        NODE("ConcatFromSequence", ["w"], ["joined"], axis=-1),
    ]
    positions = {"zero": index_of(0), "one": index_of(1), "last": index_of(-1)}
    inputs = {"x": "float32[n,2]", "y": "float32[n,3]"}
    model = model_of(nodes, inputs, positions, outputs=["count", "second", "only", "joined"])
    feeds = [{"x": normal(n, 2), "y": normal(n, 3)} for n in (0, 1, 7)]
    assert_like_onnxruntime(model, feeds)


@pytest.mark.parametrize(("axis", "new"), [(0, 0), (1, 0), (-1, 0), (0, 1), (1, 1), (-1, 1)])
def test_concatenation_of_a_list_and_of_a_stack(axis: int, new: int) -> None:
    """A split along a dim has as many items as only run time knows."""
    nodes = [
        NODE("SequenceConstruct", ["x", "x", "x"], ["s"]),
        NODE("ConcatFromSequence", ["s"], ["y"], axis=axis, new_axis=new),
        NODE("SplitToSequence", ["x"], ["t"], axis=1, keepdims=0),
        NODE("ConcatFromSequence", ["t"], ["z"], axis=min(axis, 1), new_axis=new),
    ]
    model = model_of(nodes, {"x": "float32[2,n,3]"}, outputs=["y", "z"])
    assert_like_onnxruntime(model, [{"x": normal(2, n, 3)} for n in (1, 2, 5)])


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("extent", ["4", "n"])
def test_slices_at_a_position_of_run_time(extent: str, keep: int) -> None:
    nodes = [
        NODE("SplitToSequence", ["x"], ["s"], axis=-1, keepdims=keep),
        NODE("SequenceAt", ["s", "at"], ["y"]),
        NODE("SequenceLength", ["s"], ["count"]),
    ]
    inputs = {"x": f"float32[3,{extent}]", "at": "int64[]"}
    model = model_of(nodes, inputs, outputs=["y", "count"])
    assert_like_onnxruntime(model, [{"x": normal(3, 4), "at": index_of(i)} for i in (0, 3, -1)])


@pytest.mark.parametrize("split", [np.array([1, 0, 4]), np.array(2), np.array(5), np.array(9)])
def test_parts(split: np.ndarray) -> None:
    nodes = [
        NODE("SplitToSequence", ["x", "split"], ["s"], axis=1),
        NODE("SequenceAt", ["s", "last"], ["y"]),
        NODE("SequenceLength", ["s"], ["count"]),
    ]
    constants = {"split": split, "last": index_of(-1)}
    model = model_of(nodes, {"x": "float32[n,5]"}, constants, outputs=["y", "count"])
    assert_like_onnxruntime(model, [{"x": normal(n, 5)} for n in (0, 3)])


def _sequences(
    nodes: Sequence[onnx.NodeProto], inputs: Sequence[str], outputs: Sequence[str]
) -> onnx.ModelProto:
    kind = helper.make_sequence_type_proto(FLOATS)
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_value_info(name, kind) for name in inputs],
        [helper.make_value_info(name, kind) for name in outputs],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def test_sequences_in_and_out_are_numbered_tensors() -> None:
    body = helper.make_graph(
        [NODE("Add", ["a", "b"], ["c"]), NODE("Shape", ["a"], ["d"])],
        "body",
        [helper.make_empty_tensor_value_info(name) for name in "ab"],
        [helper.make_empty_tensor_value_info(name) for name in "cd"],
    )
    nodes = [NODE("SequenceMap", ["x", "x"], ["y", "shapes"], body=body)]
    model = _sequences(nodes, ["x"], ["y"])
    built = build(model, inputs={"x_0": "float32[n]", "x_1": "float32[n,3]"}, dims={"n": (0, None)})
    assert [spec.name for spec in built.imported.inputs] == ["x_0", "x_1"]
    assert [spec.name for spec in built.imported.outputs] == ["y_0", "y_1"]
    x = [normal(4), normal(4, 3)]
    wanted = [item + item for item in x]
    assert_close(built.run({"x_0": x[0], "x_1": x[1]}), wanted, ["y_0", "y_1"])


def test_a_sequence_without_declared_items_is_refused() -> None:
    with pytest.raises(ImportFailed, match="does not give") as caught:
        build(_sequences([NODE("Identity", ["x"], ["y"])], ["x"], ["y"]))
    assert "x_0=float32" in (caught.value.failure.hint or "")


def _loop(body: Sequence[onnx.NodeProto], outputs: Sequence[str]) -> Mapping[str, Any]:
    kinds = {"i": (TensorProto.INT64, []), "go": (TensorProto.BOOL, [])}
    graph = helper.make_graph(
        [*body, NODE("Identity", ["go"], ["on"])],
        "body",
        [
            *(helper.make_tensor_value_info(name, *kind) for name, kind in kinds.items()),
            helper.make_value_info("s", helper.make_sequence_type_proto(FLOATS)),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            *(
                helper.make_value_info(name, helper.make_sequence_type_proto(FLOATS))
                for name in outputs
            ),
        ],
    )
    return {"body": graph}


GROW = [
    NODE("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
    NODE("Mul", ["x", "f"], ["item"]),
    NODE("SequenceInsert", ["s", "item"], ["grown"]),
]


@pytest.mark.parametrize("start", ["SequenceEmpty", "SequenceConstruct"])
@pytest.mark.parametrize(("axis", "new"), [(0, 0), (1, 0), (0, 1), (2, 1)])
def test_a_loop_that_appends(start: str, axis: int, new: int) -> None:
    """The export of a list that a scripted loop fills, by torch."""
    nodes = [
        NODE(start, ["x"] if start == "SequenceConstruct" else [], ["first"]),
        NODE("Loop", ["k", "", "first"], ["all"], **_loop(GROW, ["grown"])),
        NODE("SequenceLength", ["all"], ["count"]),
        NODE("ConcatFromSequence", ["all"], ["y"], axis=axis, new_axis=new),
    ]
    model = model_of(nodes, {"x": "float32[n,3]", "k": "int64[]"}, outputs=["count", "y"])
    feeds = [{"x": normal(n, 3), "k": index_of(k)} for n, k in ((2, 1), (1, 3), (5, 40))]
    assert_like_onnxruntime(model, feeds)


def test_a_loop_of_a_known_count_gives_a_list() -> None:
    nodes = [
        NODE("SequenceEmpty", [], ["first"]),
        NODE("Loop", ["k", "", "first"], ["all"], **_loop(GROW, ["grown"])),
        NODE("SequenceAt", ["all", "k1"], ["y"]),
    ]
    constants = {"k": index_of(3), "k1": index_of(2)}
    model = model_of(nodes, {"x": "float32[n]"}, constants, outputs=["y"])
    assert_like_onnxruntime(model, [{"x": normal(n)} for n in (0, 1, 4)])


def _branch(name: str, nodes: Sequence[onnx.NodeProto]) -> onnx.GraphProto:
    return helper.make_graph(nodes, name, [], [helper.make_empty_tensor_value_info(name)])


def _if(then: Sequence[str], otherwise: Sequence[str]) -> Built:
    nodes = [
        NODE(
            "If",
            ["c"],
            ["s"],
            then_branch=_branch("t", [NODE("SequenceConstruct", then, ["t"])]),
            else_branch=_branch("e", [NODE("SequenceConstruct", otherwise, ["e"])]),
        ),
        NODE("ConcatFromSequence", ["s"], ["z"], axis=0),
    ]
    model = model_of(nodes, {"x": "float32[n]", "y": "float32[m]", "c": "bool[]"}, outputs=["z"])
    return build(model)


def test_branches_that_give_sequences() -> None:
    built = _if(["x", "y"], ["y", "y"])
    x, y = normal(3), normal(2, seed=1)
    for truth, wanted in ((True, [x, y]), (False, [y, y])):
        got = built.run({"x": x, "y": y, "c": np.array(truth)})
        assert_close(got, [np.concatenate(wanted)], ["z"])


def test_branches_that_give_sequences_of_different_lengths_are_refused() -> None:
    with pytest.raises(ImportFailed, match="different lengths"):
        _if(["x", "y"], ["y"])


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ([NODE("SequenceAt", ["x", "p"], ["y"])], "tensor where a sequence belongs"),
        (
            [NODE("SequenceConstruct", ["x"], ["s"]), NODE("Neg", ["s"], ["y"])],
            "sequence where a tensor belongs",
        ),
        (
            [NODE("SequenceConstruct", ["x"], ["s"]), NODE("SequenceErase", ["s", "p"], ["y"])],
            "only run time knows the position",
        ),
        (
            [NODE("SequenceConstruct", ["x"], ["s"]), NODE("SequenceAt", ["s", "far"], ["y"])],
            "position 4 is outside of a sequence",
        ),
        ([NODE("SplitToSequence", ["x"], ["y"])], "how many items"),
        ([NODE("Optional", [], ["o"]), NODE("OptionalGetElement", ["o"], ["y"])], "no element"),
    ],
)
def test_refusals(nodes: Sequence[onnx.NodeProto], why: str) -> None:
    model = model_of(
        nodes, {"x": "float32[n]", "p": "int64[]"}, {"far": index_of(4)}, outputs=["y"]
    )
    with pytest.raises(ImportFailed, match=why):
        build(model)


def test_optional_values() -> None:
    nodes = [
        NODE("Optional", [], ["nothing"], type=FLOATS),
        NODE("Optional", ["x"], ["something"]),
        NODE("OptionalHasElement", ["nothing"], ["no"]),
        NODE("OptionalHasElement", ["something"], ["yes"]),
        NODE("OptionalGetElement", ["something"], ["y"]),
    ]
    model = model_of(nodes, {"x": "float32[n]"}, outputs=["no", "yes", "y"])
    x = normal(3)
    assert_close(build(model).run({"x": x}), [np.array(False), np.array(True), x], ["n", "y", "x"])


@pytest.mark.parametrize("there", [True, False])
def test_an_optional_input_is_there_where_it_is_declared(there: bool) -> None:
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, ["n"]))
    graph = helper.make_graph(
        [NODE("OptionalHasElement", ["x"], ["y"])],
        "graph",
        [helper.make_value_info("x", kind)],
        [helper.make_empty_tensor_value_info("y")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    built = build(model, inputs={"x": "float32[n]"} if there else {})
    (y,) = built.run({"x": normal(2)})
    assert bool(y) is there
