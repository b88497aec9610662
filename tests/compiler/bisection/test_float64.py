"""Models in float64: constants, casts and subgraphs are widened, and the outputs show it."""

import numpy as np
import onnx
import pytest

from compiler.bisection.float64 import evaluated, widened

HEADER = '<ir_version: 9, opset_import: ["": 17, "com.microsoft": 1]>'


def model_of(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"{HEADER} g {text}")


THIRD = 1 / 3
CASES = [
    ("(float[n] x) => (float[n] y) { y = Div(x, x) }", lambda x: x / x),
    (
        "(float[n] x) => (float[n] y) <float[1] w = {3}> { a = Mul(x, x) y = Div(a, w) }",
        lambda x: x * x / 3,
    ),
    (
        "(float[n] x) => (float[n] y) "
        "{ w = Constant<value = float[1] {7}>() a = Cast<to = 1>(x) y = Div(a, w) }",
        lambda x: x / 7,
    ),
    (
        "(float[n] x) => (float[n] y) <bool c = {1}> { y = If(c) <"
        "then_branch = t () => (float[n] u) "
        "{ w = Constant<value = float[1] {7}>() u = Div(x, w) }, "
        "else_branch = e () => (float[n] v) { v = Identity(x) }> }",
        lambda x: x / 7,
    ),
]


@pytest.mark.parametrize(("text", "right"), CASES)
def test_outputs_have_the_precision_of_float64(text: str, right: object) -> None:
    x = np.array([0.1, 0.7, 3.3], np.float32)
    found = evaluated(model_of(text), {"x": x})
    assert found is not None
    assert found["y"].dtype == np.float64
    np.testing.assert_allclose(found["y"], right(x.astype("float64")), rtol=1e-15)  # type: ignore[operator]


def test_the_model_itself_stays_as_it_is() -> None:
    model = model_of(CASES[1][0])
    before = model.SerializeToString()
    assert widened(model).graph.initializer[0].data_type == onnx.TensorProto.DOUBLE
    assert model.SerializeToString() == before


def test_an_operator_that_the_evaluator_lacks_gives_nothing() -> None:
    model = model_of("(float[n] x) => (float[n] y) { y = com.microsoft.FastGelu(x) }")
    assert evaluated(model, {"x": np.ones(3, np.float32)}) is None
