"""If: decided by facts, compiled, or, where its branches differ in rank, decided by what the rest
of the model can take.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from compiler.errors import ImportFailed
from compiler.ir import import_model
from relaxd.contract.request import CompileRequest
from tests.compiler.ir.onnx.running import assert_like_onnxruntime, build, model_of, normal
from tests.support.models.known import package_model

NODE = helper.make_node
FLAT = [NODE("Squeeze", ["x", "last"], ["flat"])]
SAME = [NODE("Identity", ["x"], ["same"])]
IS_ONE = [
    NODE("Shape", ["x"], ["shape"], start=-1),
    NODE("Equal", ["shape", "one"], ["is_one"]),
]
CONSTANTS = {"one": np.array([1]), "last": np.array([-1]), "w": normal(4, 3)}
ROWS = [NODE("Gemm", ["picked", "w"], ["y"])]


def branch(nodes: Sequence[onnx.NodeProto], *names: str) -> onnx.GraphProto:
    outputs = [
        helper.make_empty_tensor_value_info(name) for name in names or (nodes[-1].output[0],)
    ]
    return helper.make_graph(list(nodes), "branch", [], outputs)


def choice(
    condition: str = "is_one",
    then: Sequence[onnx.NodeProto] = FLAT,
    otherwise: Sequence[onnx.NodeProto] = SAME,
) -> onnx.NodeProto:
    return NODE(
        "If",
        [condition],
        ["picked"],
        "choice",
        then_branch=branch(then),
        else_branch=branch(otherwise),
    )


def squeezing_model(after: Sequence[onnx.NodeProto], axes: str = "n,4,w") -> onnx.ModelProto:
    return model_of(
        [*IS_ONE, choice(), *after], {"x": f"float32[{axes}]"}, CONSTANTS, outputs=["y"]
    )


def code_of(model: onnx.ModelProto, **declared: Any) -> str:
    with pytest.raises(ImportFailed) as caught:
        build(model, **declared)
    assert caught.value.failure.node == "choice"
    assert caught.value.failure.hint is not None
    return caught.value.code


def test_ranks_that_only_one_branch_fits() -> None:
    built = assert_like_onnxruntime(
        squeezing_model(ROWS), [{"x": normal(n, 4, 1)} for n in (0, 1, 2, 7, 31)]
    )
    with pytest.raises(Exception, match="match_cast"):
        built.run({"x": normal(2, 4, 3)})


def test_ranks_decided_by_the_range_of_a_dim() -> None:
    built = build(squeezing_model([NODE("Relu", ["picked"], ["y"])]), {"w": (2, 9)})
    assert built.imported.outputs[0].text == "float32[n,4,w]"


def test_ranks_that_both_branches_fit_are_refused() -> None:
    assert code_of(squeezing_model([NODE("Relu", ["picked"], ["y"])])) == "import.branch_rank"


def test_ranks_that_neither_branch_fits_are_refused() -> None:
    assert (
        code_of(
            squeezing_model(
                [NODE("Squeeze", ["picked", "one"], ["rows"]), NODE("Gemm", ["rows", "w"], ["y"])]
            )
        )
        == "import.branch_rank"
    )


def test_what_is_not_supported_proves_nothing() -> None:
    words = [NODE("Identity", ["x"], ["again"]), NODE("TfIdfVectorizer", ["again"], ["same"])]
    model = model_of(
        [*IS_ONE, choice(otherwise=words), *ROWS], {"x": "float32[n,4,w]"}, CONSTANTS, outputs=["y"]
    )
    with pytest.raises(ImportFailed) as caught:
        build(model)
    assert caught.value.code == "import.unsupported_op"


def test_a_run_time_condition_that_the_model_needs() -> None:
    model = model_of(
        [choice("flag"), *ROWS], {"flag": "bool[]", "x": "float32[n,4,1]"}, CONSTANTS, outputs=["y"]
    )
    feeds = [{"flag": np.array(True), "x": normal(n, 4, 1)} for n in (1, 5)]
    built = assert_like_onnxruntime(model, feeds)
    with pytest.raises(Exception, match="match_cast"):
        built.run({**feeds[0], "flag": np.array(False)})


def test_a_fork_inside_a_branch_is_checked_only_there() -> None:
    inner = [*IS_ONE, choice(), *ROWS]
    zeros = [
        NODE("ReduceSum", ["x", "last"], ["sums"], keepdims=0),
        NODE("Gemm", ["sums", "w"], ["z"]),
    ]
    outer = NODE(
        "If",
        ["flag"],
        ["out"],
        "outer",
        then_branch=branch(inner, "y"),
        else_branch=branch(zeros, "z"),
    )
    model = model_of([outer], {"flag": "bool[]", "x": "float32[n,4,w]"}, CONSTANTS, outputs=["out"])
    feeds = [
        {"flag": np.array(True), "x": normal(3, 4, 1)},
        *({"flag": np.array(False), "x": normal(2, 4, w)} for w in (1, 2, 5)),
    ]
    built = assert_like_onnxruntime(model, feeds)
    with pytest.raises(Exception, match="match_cast"):
        built.run({"flag": np.array(True), "x": normal(2, 4, 2)})


def test_extents_that_differ_between_branches() -> None:
    split = [NODE("Split", ["x"], ["left", "right"], num_outputs=2, axis=0)]
    model = model_of(
        [choice("flag", [*split, NODE("Relu", ["left"], ["l"])], SAME)],
        {"flag": "bool[]", "x": "float32[n,3]"},
        CONSTANTS,
    )
    assert_like_onnxruntime(
        model,
        [{"flag": np.array(flag), "x": normal(n, 3)} for n in (2, 5, 12) for flag in (True, False)],
    )


def test_a_packaged_model_of_nested_branches_keeps_its_axes_open() -> None:
    model = onnx.load(package_model("silero_vad", "data/silero_vad.onnx"))
    request = CompileRequest.of(
        inputs={"input": "float32[batch,samples]", "state": "float32[2,batch,128]"}
    )
    imported = import_model(model, request)
    assert [spec.text for spec in imported.outputs] == ["float32[batch,1]", "float32[2,batch,128]"]
    assert {dim.name for dim in imported.dims} == {"batch", "samples"}
