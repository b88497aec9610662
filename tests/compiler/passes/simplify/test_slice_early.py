"""One place of an axis is taken in front of what computes it by itself."""

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, te

from compiler.passes.match.positions import operand_axes
from compiler.passes.simplify.slice_early import SliceEarly
from tests.compiler.conftest import build_module

op = relax.op
RANDOM = np.random.default_rng(8)
WIDTH = 12
WEIGHTS = [RANDOM.standard_normal(shape).astype("float32") for shape in ((12, 20), (20, 12))]
INPUTS = {"x": (("b", "s", WIDTH), "float32")}


def layer(builder: Any, x: Any) -> Any:
    """A residual around two matmuls, and the norm behind it."""
    up, down = (relax.const(weight) for weight in WEIGHTS)
    wide = builder.emit(op.tanh(builder.emit(op.matmul(x, up))))
    total = builder.emit(op.add(x, builder.emit(op.matmul(wide, down))))
    mean = builder.emit(op.mean(builder.emit(op.multiply(total, total)), [2], keepdims=True))
    return builder.emit(op.divide(total, builder.emit(op.sqrt(mean))))


def last(builder: Any, x: Any) -> Any:
    """The last token's row, as the importer slices it."""

    def program(data: te.Tensor) -> te.Tensor:
        one = tvm.tirx.IntImm("int64", 1)
        return te.compute(
            (data.shape[0], one, data.shape[2]),
            lambda i, j, k: data(i, data.shape[1] + j - 1, k),
            name="slice",
        )

    return builder.emit_te(program, layer(builder, x), primfunc_name_hint="slice")


def first(builder: Any, x: Any) -> Any:
    rows = layer(builder, x)
    taken = builder.emit(op.strided_slice(rows, [1], [0], [1], assume_inbound=True))
    return op.squeeze(taken, [1])


def compute(x: np.ndarray) -> np.ndarray:
    total = x + np.tanh(x @ WEIGHTS[0]) @ WEIGHTS[1]
    return total / np.sqrt((total * total).mean(-1, keepdims=True))


def rows_of_matmuls(module: tvm.IRModule) -> list[str]:
    extents: list[str] = []

    def visit(node: Any) -> None:
        if isinstance(node, tvm.ir.Call) and getattr(node.op, "name", "") == "relax.matmul":
            extents.append(str(node.ty.shape.values[-2]))

    relax.analysis.post_order_visit(module["main"], visit)
    return extents


@pytest.mark.parametrize(("graph", "position"), [(last, slice(-1, None)), (first, 0)])
def test_a_layer_is_computed_for_one_row(compile_graph: Any, graph: Any, position: Any) -> None:
    rows = rows_of_matmuls(SliceEarly().apply(build_module(graph, INPUTS)))
    assert len(rows) == 2
    assert not any("s" in row for row in rows)
    model = compile_graph(graph, INPUTS)
    for b, s in [(1, 1), (2, 1), (1, 7), (3, 16), (2, 33)]:
        x = RANDOM.standard_normal((b, s, WIDTH)).astype("float32")
        np.testing.assert_allclose(model(x), compute(x)[:, position], rtol=1e-5, atol=1e-5)


def test_a_layer_whose_other_rows_are_read_stays_whole() -> None:
    def graph(builder: Any, x: Any) -> Any:
        rows = layer(builder, x)
        taken = builder.emit(op.strided_slice(rows, [1], [0], [1]))
        return op.add(rows, taken)

    module = build_module(graph, INPUTS)
    tvm.ir.assert_structural_equal(SliceEarly().apply(module)["main"], module["main"])


def test_rows_that_differ_stay_whole() -> None:
    def graph(builder: Any, x: Any) -> Any:
        rows = layer(builder, x)
        parts = [builder.emit(op.strided_slice(rows, [1], [i], [i + 1])) for i in (0, 1)]
        return op.add(*parts)

    module = build_module(graph, {"x": ((2, 5, WIDTH), "float32")})
    tvm.ir.assert_structural_equal(SliceEarly().apply(module)["main"], module["main"])


def test_without_a_matmul_nothing_moves() -> None:
    def graph(builder: Any, x: Any) -> Any:
        return op.strided_slice(builder.emit(op.tanh(x)), [1], [0], [1])

    module = build_module(graph, INPUTS)
    tvm.ir.assert_structural_equal(SliceEarly().apply(module)["main"], module["main"])


def axes_of(graph: Any, shape: tuple[Any, ...], axis: int) -> Any:
    main = build_module(graph, {"x": (shape, "float32")})["main"]
    return operand_axes(main.body.blocks[0].bindings[-1].value, axis)


@pytest.mark.parametrize(
    ("graph", "shape", "axis", "wanted"),
    [
        (lambda b, x: op.permute_dims(x, [0, 2, 1]), ("n", 3, 4), 1, [2]),
        (lambda b, x: op.permute_dims(x), ("n", 3, 4), 0, [2]),
        (lambda b, x: op.reshape(x, (2, 5, 3, 4)), (2, 5, 12), 1, [1, None]),
        (lambda b, x: op.reshape(x, (10, 12)), (2, 5, 12), 1, [2, None]),
        (lambda b, x: op.reshape(x, (10, 12)), (2, 5, 12), 0, None),
        (lambda b, x: op.nn.softmax(x, -1), ("n", 3, 4), 1, [1]),
        (lambda b, x: op.nn.softmax(x, -1), ("n", 3, 4), 2, None),
        (lambda b, x: op.sum(x, [1]), ("n", 3, 4), 1, [2]),
        (lambda b, x: op.sum(x, [1], keepdims=True), ("n", 3, 4), 1, None),
        (lambda b, x: op.squeeze(x, [1]), ("n", 1, 4), 1, [2]),
        (lambda b, x: op.expand_dims(x, [1]), ("n", 3), 2, [1]),
        (lambda b, x: op.strided_slice(x, [2], [0], [2]), ("n", 3, 4), 1, [1, None, None, None]),
        (lambda b, x: op.strided_slice(x, [1], [0], [2]), ("n", 3, 4), 1, None),
        (lambda b, x: op.cumsum(x, 1), ("n", 3, 4), 1, None),
    ],
)
def test_where_positions_come_from(graph: Any, shape: Any, axis: int, wanted: Any) -> None:
    assert axes_of(graph, shape, axis) == wanted
