"""Dims that the model's constants leave one value."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from compiler.errors import ImportFailed
from compiler.ir import import_model
from relaxd.contract.request import CompileRequest
from tests.compiler.ir.onnx.running import model_of, normal


def concat_model() -> onnx.ModelProto:
    """x[s, t, 4] beside a constant of 13 rows."""
    node = helper.make_node("Concat", ["x", "c"], ["y"], axis=1)
    return model_of([node], {"x": "float32[s,t,4]"}, {"c": normal(13, 2, 4)})


def only_in_a_branch() -> onnx.ModelProto:
    """The same where a flag is set."""
    inner = helper.make_graph(
        [helper.make_node("Concat", ["x", "c"], ["joined"], axis=1)],
        "then",
        [],
        [helper.make_empty_tensor_value_info("joined")],
    )
    other = helper.make_graph(
        [helper.make_node("Concat", ["x", "x"], ["twice"], axis=1)],
        "else",
        [],
        [helper.make_empty_tensor_value_info("twice")],
    )
    node = helper.make_node("If", ["flag"], ["y"], then_branch=inner, else_branch=other)
    inputs = {"x": "float32[s,t,4]", "flag": "bool[]"}
    return model_of([node], inputs, {"c": normal(13, 2, 4)})


def ranges(model: onnx.ModelProto, **dims: Any) -> dict[str, tuple[int, int | None]]:
    """Least and greatest value of every dim of the inputs."""
    imported = import_model(model, CompileRequest.of(dims=dims))
    return {dim.name: (dim.lowest, dim.highest) for dim in imported.dims if dim.name in ("s", "t")}


@pytest.mark.parametrize("declared", [{}, {"s": (0, None)}, {"s": 13}])
def test_a_dim_without_a_maximum_is_fixed(declared: dict[str, Any]) -> None:
    assert ranges(concat_model(), **declared) == {"s": (13, 13), "t": (1, None)}


def test_a_declared_range_of_other_values_is_refused() -> None:
    with pytest.raises(ImportFailed, match="dim s can only be 13") as caught:
        ranges(concat_model(), s=(1, 64))
    assert caught.value.failure.node == "y"
    assert caught.value.failure.hint == "declare it so: s=13"


def test_a_range_without_that_value_is_refused() -> None:
    with pytest.raises(ImportFailed, match="differ on axis 0"):
        ranges(concat_model(), s=(14, 64))


def test_what_only_a_branch_requires_leaves_the_dim_open() -> None:
    assert ranges(only_in_a_branch(), s=(1, 64))["s"] == (1, 64)


def test_broadcasting_leaves_a_dim_open_that_may_be_1() -> None:
    node = helper.make_node("Add", ["x", "c"], ["y"])
    model = model_of([node], {"x": "float32[s,t]"}, {"c": np.ones((13, 2), "float32")})
    assert ranges(model) == {"s": (1, None), "t": (1, None)}
    assert ranges(model, s=(2, None))["s"] == (13, 13)
