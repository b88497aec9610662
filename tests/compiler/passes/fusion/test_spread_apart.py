"""A vector that a convolution or a matmul computes, spread over an image."""

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from compiler.passes.fusion.spread_apart import SpreadApart
from compiler.passes.manager import lower
from compiler.passes.tvm_fixes.correct_patterns import CorrectPatterns
from tests.compiler.conftest import HOST, build_module

op = relax.op
RANDOM = np.random.default_rng(5)
DOWN, UP = (
    RANDOM.standard_normal(s).astype("float32") * 0.3 for s in ((6, 24, 1, 1), (24, 6, 1, 1))
)
IMAGES = {"x": (("n", 24, "h", "w"), "float32")}


def gate_image(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    """Each channel of an image by a gate that all means of channels decide."""
    means = builder.emit(op.mean(x, [2, 3], keepdims=True))
    few = builder.emit(op.nn.relu(op.nn.conv2d(means, relax.const(DOWN))))
    gate = builder.emit(op.sigmoid(op.nn.conv2d(few, relax.const(UP))))
    return op.multiply(x, gate)


def mark(module: tvm.IRModule) -> tvm.IRModule:
    """The module as the pass finds it."""
    legal = relax.transform.LegalizeOps()(module)
    return CorrectPatterns().apply(relax.transform.AnnotateTIROpPattern()(legal))


def test_the_gate_is_computed_in_a_kernel_of_its_own() -> None:
    names = [gvar.name_hint for gvar in lower(build_module(gate_image, IMAGES), HOST, {}).functions]
    gates = [name for name in names if "panel_conv" in name]
    assert len(gates) == 2
    assert not any("multiply" in name for name in gates)
    assert any("multiply" in name for name in names)


@pytest.mark.parametrize("extent", [7, "n"])
def test_a_reduction_may_read_a_number(extent: int | str) -> None:
    def normalize(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.nn.log_softmax(x)

    module = mark(build_module(normalize, {"x": ((extent,), "float32")}))
    assert SpreadApart().apply(module) is module


def test_values_at_every_extent(compile_graph: Any) -> None:
    model = compile_graph(gate_image, IMAGES)
    for n, h, w in [(1, 1, 1), (1, 7, 5), (3, 16, 17), (2, 31, 33)]:
        x = RANDOM.standard_normal((n, 24, h, w)).astype("float32")
        few = np.maximum(np.einsum("ncij,dc->nd", x, DOWN[..., 0, 0]) / (h * w), 0)
        gate = 1 / (1 + np.exp(-few @ UP[..., 0, 0].T))
        np.testing.assert_allclose(model(x), x * gate[..., None, None], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 40), (40,), (1, 1, 1, 40)])
def test_a_bias_is_fused_as_before(shape: tuple[int, ...]) -> None:
    weight, bias = (
        relax.const(RANDOM.standard_normal(s).astype("float32")) for s in ((24, 40), shape)
    )

    def biased(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.add(builder.emit(op.matmul(x, weight)), bias)

    module = mark(build_module(biased, {"x": (("n", "s", 1, 24), "float32")}))
    assert SpreadApart().apply(module).same_as(module)


def test_a_row_of_a_matmul_added_to_many_starts_a_kernel() -> None:
    weight = relax.const(RANDOM.standard_normal((24, 40)).astype("float32"))

    def spread(builder: relax.BlockBuilder, x: relax.Var, y: relax.Var) -> relax.Expr:
        return op.add(builder.emit(op.nn.relu(op.matmul(x, weight))), y)

    module = mark(
        build_module(spread, {"x": (("n", 1, 24), "float32"), "y": (("n", "s", 40), "float32")})
    )
    after = SpreadApart().apply(module)
    assert {g.name_hint for g in after.functions} - {g.name_hint for g in module.functions} == {
        "add_apart"
    }
