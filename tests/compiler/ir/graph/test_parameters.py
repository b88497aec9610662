"""Inputs whose axes are expressions: dims that no axis is plainly, beside ONNX Runtime."""

import numpy as np
import onnx
import pytest
from onnx import helper

from compiler.errors import ImportFailed
from tests.compiler.ir.onnx.running import assert_close, build, model_of, normal, session_of


def specs_of(*shapes: str) -> dict[str, str]:
    return {name: f"float32[{shape}]" for name, shape in zip("xy", shapes, strict=True)}


NODES = [
    helper.make_node("Slice", ["x", "from", "to"], ["cut"]),
    helper.make_node("MatMul", ["cut", "y"], ["product"]),
]
CONSTANTS = {"from": np.array([3]), "to": np.array([2**62])}


def model() -> onnx.ModelProto:
    return model_of(NODES, {"x": "float32[a,b]", "y": "float32[c,d]"}, CONSTANTS)


def test_a_dim_from_a_sum_and_one_from_a_multiple() -> None:
    built = build(model(), inputs=specs_of("n+3,2*k", "2*k,3"))
    assert [spec.text for spec in built.imported.outputs] == ["float32[n,k * 2]", "float32[n,3]"]
    session = session_of(model())
    for n, k in ((1, 1), (2, 5), (7, 2)):
        feed = {"x": normal(n + 3, 2 * k), "y": normal(2 * k, 3)}
        assert_close(built.run(feed), session.run(None, feed), ["cut", "product"])
    with pytest.raises(RuntimeError, match="match_cast"):
        built.run({"x": normal(4, 3), "y": normal(3, 3)})


def test_a_dim_beside_another_that_is_plain() -> None:
    built = build(model(), inputs=specs_of("n+m,k", "k,m"))
    x, y = normal(5, 4), normal(4, 2)
    assert_close(built.run({"x": x, "y": y}), [x[3:], x[3:] @ y], ["cut", "product"])
    with pytest.raises(RuntimeError, match="match_cast"):
        build(model(), inputs=specs_of("n+m,2*m", "2*m,n-m")).run(
            {"x": normal(5, 4), "y": normal(4, 2)}
        )


def test_a_dim_that_no_axis_gives_is_refused() -> None:
    with pytest.raises(
        ImportFailed, match="no input gives the dim 'n': axis 0 of 'x' is n // 2"
    ) as caught:
        build(model(), inputs=specs_of("n//2,4", "4,3"))
    assert caught.value.failure.field == "inputs.x"
    assert "plainly n" in (caught.value.failure.hint or "")
    with pytest.raises(ImportFailed, match="no input gives the dim"):
        build(model(), inputs=specs_of("n+m,4", "4,3"))
