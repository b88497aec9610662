"""Slices that are split into heads become slices of heads, and what transposes them takes
them in.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, te

from compiler.ir.graph.programs import call_program
from compiler.passes.match.axis_parts import Part, read_part
from compiler.passes.simplify.slice_heads import SliceHeads
from tests.compiler.conftest import build_module

op = relax.op
INPUTS = {"x": (("b", "s", 96), "float32")}


def cut(builder: Any, x: Any, first: int, last: int) -> Any:
    """x[:, :, first:last] as the importer writes it, by a program that copies."""

    def program(data: te.Tensor) -> te.Tensor:
        return te.compute(
            (*data.shape[:-1], tvm.tirx.IntImm("int64", last - first)),
            lambda i, j, k: data(i, j, k + first),
        )

    return builder.emit_te(program, x, primfunc_name_hint="slice")


def slice_columns(builder: Any, x: Any, first: int, last: int) -> Any:
    return builder.emit(op.strided_slice(x, [2], [first], [last]))


def split(builder: Any, x: Any, heads: int, size: int) -> Any:
    return builder.emit(op.reshape(x, relax.ShapeExpr([*x.ty.shape.values[:-1], heads, size])))


def turn(x: Any) -> Any:
    return op.permute_dims(x, [0, 2, 1, 3])


@pytest.mark.parametrize("take", [cut, slice_columns])
def test_a_part_of_an_axis_becomes_a_part_of_the_heads(take: Callable[..., Any]) -> None:
    def before(builder: Any, x: Any) -> Any:
        return turn(split(builder, take(builder, x, 32, 64), 4, 8))

    def after(builder: Any, x: Any) -> Any:
        return turn(builder.emit(op.strided_slice(split(builder, x, 12, 8), [2], [4], [8])))

    rewritten = tvm.IRModule({"main": SliceHeads().apply(build_module(before, INPUTS))["main"]})
    tvm.ir.assert_structural_equal(rewritten["main"], build_module(after, INPUTS)["main"])


def across(builder: Any, x: Any) -> Any:
    """Heads of 16 that start in the middle of another."""
    return turn(split(builder, slice_columns(builder, x, 8, 40), 2, 16))


def uneven(builder: Any, x: Any) -> Any:
    """Heads of 20, of which 96 has no whole number."""
    return turn(split(builder, slice_columns(builder, x, 0, 40), 2, 20))


def read_twice(builder: Any, x: Any) -> Any:
    part = slice_columns(builder, x, 0, 32)
    return relax.Tuple([turn(split(builder, part, 4, 8)), builder.emit(op.nn.relu(part))])


def flat(builder: Any, x: Any) -> Any:
    return op.reshape(
        builder.emit(op.strided_slice(x, [2], [0], [32])),
        relax.ShapeExpr([x.ty.shape.values[0] * x.ty.shape.values[1] * 32]),
    )


@pytest.mark.parametrize("function", [across, uneven, read_twice, flat])
def test_others_stay(function: Callable[..., Any]) -> None:
    module = build_module(function, INPUTS)
    tvm.ir.assert_structural_equal(SliceHeads().apply(module), module)


def call_of(function: Callable[..., Any]) -> tuple[tvm.IRModule, Any]:
    module = build_module(lambda builder, x: op.nn.relu(function(builder, x)), INPUTS)
    return module, module["main"].body.blocks[0].bindings[0].value


@pytest.mark.parametrize("take", [cut, slice_columns])
@pytest.mark.parametrize(("first", "last"), [(0, 32), (32, 96), (95, 96)])
def test_parts_are_read_from_operators_and_programs(
    take: Callable[..., Any], first: int, last: int
) -> None:
    module, call = call_of(lambda builder, x: take(builder, x, first, last))
    part = read_part(module, call)
    assert part is not None
    assert part[1] == Part(2, first, last - first)


def every_other(builder: Any, x: Any) -> Any:
    return builder.emit(op.strided_slice(x, [2], [0], [96], [2]))


def of_a_dim(builder: Any, x: Any) -> Any:
    return builder.emit(op.strided_slice(x, [1], [0], [4]))


def backwards(builder: Any, x: Any) -> Any:
    return builder.emit_te(
        lambda data: te.compute(
            (*data.shape[:-1], tvm.tirx.IntImm("int64", 48)), lambda i, j, k: data(i, j, 95 - k)
        ),
        x,
    )


def of_a_number(builder: Any, x: Any) -> Any:
    """A program that is given a dim and no tensor."""
    dim, one = x.ty.shape.values[1], tvm.tirx.IntImm("int64", 1)
    call, _ = call_program(
        builder,
        lambda: te.compute((one, one, one), lambda i, j, k: dim.astype("float32")),
        [],
        "number",
        [dim],
    )
    return builder.emit(call)


@pytest.mark.parametrize("function", [every_other, of_a_dim, backwards, of_a_number])
def test_other_slices_are_no_parts(function: Callable[..., Any]) -> None:
    assert read_part(*call_of(function)) is None


def test_a_growing_cache_takes_in_the_slice_and_its_transpose(
    compile_graph: Callable[..., Any], draw: np.random.Generator
) -> None:
    def grown(builder: Any, x: Any, past: Any) -> Any:
        heads = builder.emit(turn(split(builder, cut(builder, x, 32, 64), 4, 8)))
        return op.concat([past, heads], 2)

    model = compile_graph(grown, {**INPUTS, "past": (("b", 4, "p", 8), "float32")})
    for b, s, p in [(1, 1, 0), (1, 1, 7), (2, 3, 16), (1, 17, 31), (2, 40, 1)]:
        x, past = (
            draw.standard_normal((b, s, 96)).astype("float32"),
            draw.standard_normal((b, 4, p, 8)).astype("float32"),
        )
        want = np.concatenate([past, x[..., 32:64].reshape(b, s, 4, 8).swapaxes(1, 2)], axis=2)
        np.testing.assert_array_equal(model(x, past), want)
