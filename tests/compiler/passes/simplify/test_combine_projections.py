"""Products of one tensor become one where their results are split into heads, and nobody copies a
slice of it.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from compiler.passes.fusion.fuse_attention import FuseAttention
from compiler.passes.simplify.combine_projections import CombineProjections
from tests.compiler.conftest import build_module
from tests.support.rounding import assert_within, error_of_matmul

op = relax.op
SIZE = 8
INPUTS = {"x": (("b", "s", 24), "float32")}
DRAW = np.random.default_rng(0)
WEIGHTS = {
    heads: (DRAW.standard_normal((24, heads * SIZE)) / 5).astype("float32") for heads in (1, 2, 4)
}
BIASES = {heads: DRAW.standard_normal(heads * SIZE).astype("float32") for heads in (1, 2, 4)}


def const(value: Any) -> Any:
    return relax.const(value, "float32")


def split(builder: Any, x: Any, size: int = SIZE) -> Any:
    """[b, s, heads * size] as [b, s, heads, size]."""
    *lead, width = x.ty.shape.values
    return builder.emit(op.reshape(x, relax.ShapeExpr([*lead, int(width) // size, size])))


def turn(builder: Any, heads: Any) -> Any:
    return builder.emit(op.permute_dims(heads, [0, 2, 1, 3]))


def project(builder: Any, x: Any, heads: int) -> Any:
    return builder.emit(op.matmul(x, const(WEIGHTS[heads])))


def before(builder: Any, x: Any) -> Any:
    """The first with a bias and a factor, the second with a bias, the third with neither."""
    q = builder.emit(
        op.multiply(builder.emit(op.add(const(BIASES[2]), project(builder, x, 2))), const(0.5))
    )
    k = builder.emit(op.add(project(builder, x, 1), const(BIASES[1])))
    v = project(builder, x, 4)
    return relax.Tuple([turn(builder, split(builder, value)) for value in (q, k, v)])


def after(builder: Any, x: Any) -> Any:
    weight = np.concatenate([WEIGHTS[2], WEIGHTS[1], WEIGHTS[4]], axis=1)
    bias = np.concatenate([BIASES[2], BIASES[1], np.zeros(4 * SIZE)])
    factor = np.concatenate([np.full(2 * SIZE, 0.5), np.ones(5 * SIZE)])
    value = builder.emit(op.add(builder.emit(op.matmul(x, const(weight))), const(bias)))
    heads = split(builder, builder.emit(op.multiply(value, const(factor))))
    return relax.Tuple(
        [
            turn(builder, builder.emit(op.strided_slice(heads, [2], [first], [to])))
            for first, to in ((0, 2), (2, 3), (3, 7))
        ]
    )


def test_one_matmul_replaces_three() -> None:
    tvm.ir.assert_structural_equal(
        CombineProjections().apply(build_module(before, INPUTS)), build_module(after, INPUTS)
    )


def gate(builder: Any, x: Any) -> Any:
    """A gate that reads all of both results."""
    return op.multiply(
        builder.emit(op.nn.silu(project(builder, x, 2))),
        builder.emit(op.matmul(x, const(WEIGHTS[2] + 1))),
    )


def return_both(builder: Any, x: Any) -> Any:
    return relax.Tuple(
        [
            split(builder, project(builder, x, 2)),
            turn(builder, split(builder, project(builder, x, 1))),
        ]
    )


def read_twice(builder: Any, x: Any) -> Any:
    value = project(builder, x, 2)
    other = turn(builder, split(builder, project(builder, x, 1)))
    return relax.Tuple(
        [turn(builder, split(builder, value)), other, builder.emit(op.nn.relu(value))]
    )


def of_two_sizes(builder: Any, x: Any) -> Any:
    return relax.Tuple(
        [
            turn(builder, split(builder, project(builder, x, heads), size))
            for heads, size in ((2, 8), (1, 4))
        ]
    )


def of_two_tensors(builder: Any, x: Any) -> Any:
    return relax.Tuple(
        [
            turn(builder, split(builder, project(builder, value, 2)))
            for value in (x, builder.emit(op.nn.relu(x)))
        ]
    )


def apart(builder: Any, x: Any) -> Any:
    """Another layer between the two, as between those of a decoder that read one encoder."""
    first = turn(builder, split(builder, project(builder, x, 2)))
    layer = builder.emit(op.matmul(builder.emit(op.nn.relu(x)), const(WEIGHTS[1])))
    return relax.Tuple([first, layer, turn(builder, split(builder, project(builder, x, 1)))])


def by_row(builder: Any, x: Any) -> Any:
    """A constant for each row of the result, not for each column."""
    values = [
        builder.emit(op.add(project(builder, x, 2), const(np.ones((2 * SIZE, 1)))))
        for _ in range(2)
    ]
    return relax.Tuple([turn(builder, split(builder, value)) for value in values])


@pytest.mark.parametrize(
    "function", [gate, return_both, read_twice, of_two_sizes, of_two_tensors, apart, by_row]
)
def test_others_stay(function: Callable[..., Any]) -> None:
    inputs = {"x": (("b", 16, 24), "float32")} if function is by_row else INPUTS
    module = build_module(function, inputs)
    tvm.ir.assert_structural_equal(CombineProjections().apply(module), module)


def attend(builder: Any, x: Any) -> Any:
    q, k, v = (
        builder.emit(
            op.add(builder.emit(op.matmul(x, const(WEIGHTS[2] * n))), const(BIASES[2] + n))
        )
        for n in (1, 2, 3)
    )
    k = builder.emit(op.permute_dims(split(builder, k), [0, 2, 3, 1]))
    q, v = (turn(builder, split(builder, value)) for value in (q, v))
    scores = builder.emit(op.matmul(q, k))
    return builder.emit(op.matmul(builder.emit(op.nn.softmax(scores, -1)), v))


def test_attention_reads_the_heads_where_they_lie() -> None:
    module = relax.transform.CanonicalizeBindings()(build_module(attend, INPUTS))
    text = FuseAttention().apply(CombineProjections().apply(module))["main"].script()
    assert text.count("R.matmul") == 1
    assert "strided_slice" not in text
    assert "permute_dims" not in text


def heads_of(
    x: np.ndarray, heads: int, factor: float = 1, shift: np.ndarray | float = 0
) -> np.ndarray:
    value = x.astype("float64") @ (WEIGHTS[heads].astype("float64") * factor) + shift
    return value.reshape(*x.shape[:2], heads, SIZE).swapaxes(1, 2)


def error_of_heads(x: np.ndarray, heads: int, shift: np.ndarray | float = 0) -> np.ndarray:
    allowed = error_of_matmul(x, WEIGHTS[heads], shift)
    return allowed.reshape(*x.shape[:2], heads, SIZE).swapaxes(1, 2)


def extents(draw: np.random.Generator) -> list[tuple[int, int]]:
    """(b, s): one, around the kernels' groups of rows, and some at random."""
    return [
        (1, 1),
        (1, 7),
        (2, 16),
        (1, 17),
        (3, 31),
        *((int(draw.integers(1, 5)), int(draw.integers(1, 90))) for _ in range(6)),
    ]


def test_attention_over_combined_heads_at_any_extents(
    compile_graph: Callable[..., Any], draw: np.random.Generator
) -> None:
    model = compile_graph(attend, INPUTS)
    for b, s in extents(draw):
        x = draw.standard_normal((b, s, 24)).astype("float32")
        q, k, v = (heads_of(x, 2, n, BIASES[2].astype("float64") + n) for n in (1, 2, 3))
        scores = q @ k.swapaxes(-1, -2)
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        np.testing.assert_allclose(
            model(x), powers / powers.sum(-1, keepdims=True) @ v, rtol=1e-4, atol=2e-5
        )


def test_slices_that_others_take_in_at_any_extents(
    compile_graph: Callable[..., Any], draw: np.random.Generator
) -> None:
    def joined(builder: Any, x: Any) -> Any:
        return op.concat(list(before(builder, x).fields), 1)

    model = compile_graph(joined, INPUTS)
    for b, s in extents(draw):
        x = draw.standard_normal((b, s, 24)).astype("float32")
        parts = [
            heads_of(x, 2, shift=BIASES[2]) * 0.5,
            heads_of(x, 1, shift=BIASES[1]),
            heads_of(x, 4),
        ]
        errors = [
            error_of_heads(x, 2, BIASES[2]),
            error_of_heads(x, 1, BIASES[1]),
            error_of_heads(x, 4),
        ]
        want, allowed = np.concatenate(parts, axis=1), np.concatenate(errors, axis=1)
        assert_within(model(x), want, allowed)
