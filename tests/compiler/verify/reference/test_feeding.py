"""The numbers that replace random nodes in the reference's model are those of the generator."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from compiler.errors import ImportFailed
from compiler.ir.graph.draws import Draw, Law, stream_of
from compiler.verify.reference import feeding
from compiler.verify.reference.numbers import numbers
from tests.compiler.ir.onnx.running import model_of, session_of

NODE = helper.make_node


def _run(model: onnx.ModelProto, inputs: Mapping[str, Any]) -> list[Any]:
    replacement = feeding.replace_random(model)
    assert replacement is not None
    session = session_of(replacement[0])
    names = [output.name for output in session.get_outputs()]
    outputs = feeding.run(
        lambda feeds: dict(zip(names, session.run(names, dict(feeds)), strict=True)),
        inputs,
        replacement[1],
    )
    return list(outputs.values())


def _numbers(name: str, shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> Any:
    draw = Draw(stream_of(f"node {name}"), Law.NORMAL, dtype)
    return numbers(draw, seed, int(np.prod(shape))).reshape(shape)


def test_a_model_that_draws_nothing_stays_as_it_is() -> None:
    assert (
        feeding.replace_random(model_of([NODE("Neg", ["x"], ["y"])], {"x": "float32[n]"})) is None
    )


@pytest.mark.parametrize("opset", [6, 7, 10, 11])
def test_dropout_of_an_old_opset_draws_nothing(opset: int) -> None:
    flags = {"is_test": 1} if opset == 6 else {}
    model = model_of([NODE("Dropout", ["x"], ["y"], **flags)], {"x": "float32[n]"}, opset=opset)
    assert feeding.replace_random(model) is None


def test_an_old_model_that_cannot_be_rewritten_says_so() -> None:
    nodes = [NODE("RandomNormalLike", ["x"], ["y"]), NODE("Add", ["x", "y"], ["z"])]
    with pytest.raises(
        ImportFailed, match="opset 6, and what is asked for takes opset 11"
    ) as error:
        feeding.replace_random(model_of(nodes, {"x": "float32[n]"}, opset=6))
    assert error.value.code == "import.opset"


@pytest.mark.parametrize("opset", [9, 13, 19])
@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (300, 100)])
def test_rows_are_cut_to_any_shape(opset: int, shape: tuple[int, int]) -> None:
    """The last one needs more numbers than the first row has."""
    model = model_of([NODE("RandomNormalLike", ["x"], ["y"])], {"x": "float32[n,m]"}, opset=opset)
    inputs = {"x": np.zeros(shape, np.float32), "relaxd.seed": np.array(7)}
    np.testing.assert_array_equal(_run(model, inputs)[0], _numbers("y", shape, seed=7))


def test_the_dtype_is_that_of_what_it_resembles() -> None:
    nodes = [NODE("Cast", ["x"], ["d"], to=11), NODE("RandomNormalLike", ["d"], ["y"])]
    model = model_of(nodes, {"x": "float32[n]"}, outputs=["y"])
    (y,) = _run(model, {"x": np.zeros(4, np.float32)})
    np.testing.assert_array_equal(y, _numbers("y", (4,), "float64"))


def test_no_axis_at_all() -> None:
    model = model_of([NODE("RandomNormalLike", ["x"], ["y"])], {"x": "float32[]"})
    (y,) = _run(model, {"x": np.zeros((), np.float32)})
    np.testing.assert_array_equal(y, _numbers("y", ()))


def test_nodes_in_a_branch() -> None:
    inner = helper.make_graph(
        [NODE("RandomNormalLike", ["x"], ["r"])],
        "then",
        [],
        [helper.make_empty_tensor_value_info("r")],
    )
    other = helper.make_graph(
        [NODE("Identity", ["x"], ["s"])], "else", [], [helper.make_empty_tensor_value_info("s")]
    )
    nodes = [NODE("If", ["c"], ["y"], then_branch=inner, else_branch=other)]
    model = model_of(nodes, {"x": "float32[n]", "c": "bool[]"})
    x = np.ones(3, np.float32)
    np.testing.assert_array_equal(
        _run(model, {"x": x, "c": np.array(True)})[0], _numbers("r", (3,))
    )
    np.testing.assert_array_equal(_run(model, {"x": x, "c": np.array(False)})[0], x)


def test_each_call_of_a_function_draws_its_own() -> None:
    noise = helper.make_function(
        "mine", "Noise", ["a"], ["b"], [NODE("RandomNormalLike", ["a"], ["b"])],
        [helper.make_opsetid("", 19)],
    )  # fmt: skip
    calls = [NODE("Noise", ["x"], [name], domain="mine") for name in ("y", "z")]
    model = model_of(calls, {"x": "float32[n]"})
    model.functions.append(noise)
    model.opset_import.append(helper.make_opsetid("mine", 1))
    y, z = _run(model, {"x": np.zeros(50, np.float32)})
    assert (y != z).all()


def test_another_failure_is_not_taken_for_a_short_row() -> None:
    calls = []

    def engine(feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        calls.append(feeds)
        raise ValueError("anything else")

    with pytest.raises(ValueError, match="anything else"):
        feeding.run(engine, {}, {"row": Draw(1, Law.UNIFORM, "float32")})
    assert len(calls) == 1
