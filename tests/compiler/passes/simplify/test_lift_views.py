"""Views behind elementwise operators, views of views, and permutations that move nothing."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from compiler.passes.simplify.lift_views import LiftViews

op = relax.op
N = tirx.Var("n", "int64")


def module(shape: list[Any], *steps: Callable[[Any], Any]) -> tvm.IRModule:
    """A chain of operators over x."""
    builder = relax.BlockBuilder()
    value = x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            for step in steps:
                value = builder.emit(step(value))
            value = builder.emit_output(value)
        builder.emit_func_output(value)
    return builder.get()


def plain(shape: list[Any], *steps: Callable[[Any], Any]) -> tvm.IRModule:
    """The chain without variables that stand for others."""
    return relax.transform.CanonicalizeBindings()(module(shape, *steps))


def squeeze(x: Any) -> Any:
    return op.squeeze(x, 2)


def expand(x: Any) -> Any:
    return op.expand_dims(x, 2)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([squeeze, op.nn.relu, expand, op.tanh], [op.nn.relu, op.tanh]),
        ([squeeze, op.nn.relu], [op.nn.relu, squeeze]),
        (
            [lambda x: op.reshape(x, [6, N]), lambda x: op.clip(x, 0, 6)],
            [lambda x: op.clip(x, 0, 6), lambda x: op.reshape(x, [6, N])],
        ),
        (
            [squeeze, lambda x: op.reshape(x, [6, N]), lambda x: op.reshape(x, [6 * N])],
            [lambda x: op.reshape(x, [6 * N])],
        ),
        ([lambda x: op.reshape(x, [6, N]), lambda x: op.nn.softmax(x, 1)], None),
        ([squeeze, lambda x: op.permute_dims(x, [0, 2, 1])], None),
    ],
    ids=["between", "last", "arguments", "merged", "rows", "moves"],
)
def test_chains(before: list[Any], after: list[Any] | None) -> None:
    shape = [2, 3, 1, N]
    result = LiftViews(transposes=True).apply(module(shape, *before))
    tvm.ir.assert_structural_equal(result, plain(shape, *(before if after is None else after)))


def test_permutations_of_axes_of_one_element_are_views_on_request() -> None:
    before = plain([2, 3, 1, N], lambda x: op.permute_dims(x, [0, 2, 1, 3]))
    wanted = plain([2, 3, 1, N], lambda x: op.reshape(x, [2, 1, 3, N]))
    tvm.ir.assert_structural_equal(LiftViews(transposes=True).apply(before), wanted)
    tvm.ir.assert_structural_equal(LiftViews().apply(before), before)


def test_convolutions_along_one_axis_take_their_activation_along(
    compile_graph: Any, draw: Any
) -> None:
    weight = draw.standard_normal((8, 5, 1, 3)).astype("float32")

    def graph(builder: Any, x: Any) -> Any:
        row = builder.emit(
            op.nn.conv2d(
                builder.emit(op.expand_dims(x, 2)), relax.const(weight), padding=[0, 1, 0, 1]
            )
        )
        return op.nn.relu(builder.emit(op.squeeze(row, 2)))

    model = compile_graph(graph, {"x": (("b", 5, "w"), "float32")})
    for b, w in [(1, 3), (2, 7), (3, 31)]:
        x = draw.standard_normal((b, 5, w)).astype("float32")
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1)))
        want = sum(
            np.einsum("bcw,oc->bow", padded[..., tap : tap + w], weight[:, :, 0, tap])
            for tap in range(3)
        )
        np.testing.assert_allclose(model(x), np.maximum(want, 0), rtol=1e-4, atol=1e-4)


def test_what_a_later_block_reads_is_visible_there() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((3, 4), "float32"))
    count = relax.Var("count", relax.TensorType((1,), "int64"))
    with builder.function("main", [x, count]):
        with builder.dataflow():
            source = builder.emit(op.negative(x))
            below = builder.emit_output(op.abs(builder.emit(op.expand_dims(source, 0))))
            extents = builder.emit_output(op.tensor_to_shape(count))
        builder.match_cast(extents, relax.ShapeType([N]))
        with builder.dataflow():
            steps = op.tanh(below), op.zeros(relax.ShapeExpr([N]), "float32")
            ends = [builder.emit_output(step) for step in steps]
        builder.emit_func_output(relax.Tuple(ends))
    after = LiftViews().apply(builder.get())
    hidden: set[Any] = set()
    for block in after["main"].body.blocks:
        read = {v for b in block.bindings for v in relax.analysis.free_vars(b.value)}
        own = {b.var for b in block.bindings if isinstance(b.var, relax.DataflowVar)}
        assert not (read - own) & hidden
        hidden |= own
    assert len(after["main"].body.blocks) == 3
