from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from tvm import relax, sym, te, tirx

from compiler.passes.manager import to_kernels
from compiler.tir.exprs import const, substitute
from compiler.tir.loops import PARALLEL_IF
from tests.compiler.conftest import HOST, build_module

op = relax.op

SIZES = (1, 2, 7, 8, 9, 31, 64, 67)


N3 = {"x": (("n", "m", 48), "float32")}
NM = {"x": (("n", "m"), "float32")}
TWO = {"x": (("n", "m"), "float32"), "y": (("n", "m"), "float32")}


def _gather(b: Any, x: Any, position: Callable[[Any], Any], length: int) -> Any:
    """Elements of the last axis by their positions."""

    def program(x: Any) -> Any:
        *outer, _ = x.shape
        shape = [*outer, tirx.IntImm("int64", length)]
        return te.compute(shape, lambda *axes: tirx.exp(x(*axes[:-1], position(axes[-1]))))

    return op.log(b.emit_te(program, x))


def _chosen(b: Any, x: Any, y: Any, first: int, length: int) -> Any:
    """Channels of two tensors in turn, as a shuffle of them has."""

    def program(x: Any, y: Any) -> Any:
        *outer, _ = x.shape

        def value(*axes: Any) -> Any:
            i = axes[-1] + first
            sides = (one(*axes[:-1], i // 2) for one in (x, y))
            return tirx.if_then_else(tirx.floormod(i, 2) == 0, *sides) * 2

        return te.compute([*outer, tirx.IntImm("int64", length)], value)

    return b.emit_te(program, x, y)


def _in_turn(channels: int, first: int = 0, length: int | None = None) -> tuple[Any, Any, Any]:
    length = 2 * channels if length is None else length
    inputs = dict.fromkeys("xy", (("n", "m", channels), "float32"))
    return (
        lambda b, x, y: _chosen(b, x, y, first, length),
        inputs,
        lambda x, y: 2 * np.stack([x, y], -1).reshape(*x.shape[:2], -1)[..., first:][..., :length],
    )


def _over_images(channels: int, keepdims: bool) -> tuple[Any, Any, Any]:
    """The mean over height and width of images with channels last, as before squeeze-excite."""
    return (
        lambda b, x: op.mean(x, [1, 2], keepdims=keepdims),
        {"x": (("n", "m", 5, channels), "float32")},
        lambda x: x.mean((1, 2), keepdims=keepdims),
    )


CASES: dict[str, Any] = {
    **{f"images' means, {c} channels": _over_images(c, True) for c in (1, 3, 24, 96, 100, 480)},
    "images' means, flat": _over_images(96, False),
    "padded colours": (
        lambda b, x: op.nn.pad(op.permute_dims(x, [0, 2, 3, 1]), [0, 0, 1, 2, 3, 0, 0, 0]),
        {"x": ((2, 3, "n", "m"), "float32")},
        lambda x: np.pad(x.transpose(0, 2, 3, 1), [(0, 0), (1, 2), (3, 0), (0, 0)]),
    ),
    "padded on all sides, then bent": (
        lambda b, x: op.exp(op.nn.pad(x, [1, 0, 2, 1, 1, 1], pad_value=0.5)),
        {"x": (("n", "m", 5), "float32")},
        lambda x: np.exp(np.pad(x, [(1, 0), (2, 1), (1, 1)], constant_values=0.5)),
    ),
    "a padded row": (
        lambda b, x: op.nn.pad(x, [3, 4]),
        {"x": (("n",), "float32")},
        lambda x: np.pad(x, [(3, 4)]),
    ),
    "mean over all rows": (
        lambda b, x: op.mean(x, [0, 1]),
        {"x": (("n", "m", 80), "float32")},
        lambda x: x.mean((0, 1)),
    ),
    "norm over an image": (
        lambda b, x: op.sqrt(op.add(op.sum(op.multiply(x, x), [1, 2]), relax.const(1.0))),
        {"x": (("n", "m", 3, 48), "float32")},
        lambda x: np.sqrt((x * x).sum((1, 2)) + 1),
    ),
    "sums of whole numbers": (
        lambda b, x: op.sum(op.astype(x, "int32"), [1]),
        NM,
        lambda x: x.astype("int32").sum(1),
    ),
    "products of rows": (
        lambda b, x: op.prod(op.add(op.multiply(x, relax.const(0.01)), relax.const(1.0)), [1]),
        NM,
        lambda x: (x * 0.01 + 1).prod(1),
    ),
    "neighbours are swapped": (
        lambda b, x: _gather(b, x, lambda i: i + 1 - i % 2 * 2, 48),
        N3,
        lambda x: x.reshape(*x.shape[:2], 24, 2)[..., ::-1].reshape(x.shape),
    ),
    "each element twice": (
        lambda b, x: _gather(b, x, lambda i: i // 2, 90),
        N3,
        lambda x: x[..., :45].repeat(2, -1),
    ),
    "groups in turn": (
        lambda b, x: _gather(b, x, lambda i: i % 2 * 24 + i // 2, 48),
        N3,
        lambda x: x.reshape(*x.shape[:2], 2, 24).swapaxes(2, 3).reshape(x.shape),
    ),
    "three groups in turn, from the second on": (
        lambda b, x: _gather(b, x, lambda i: (i + 1) % 3 * 16 + (i + 1) // 3, 45),
        N3,
        lambda x: x.reshape(*x.shape[:2], 3, 16).swapaxes(2, 3).reshape(x.shape)[..., 1:46],
    ),
    **{f"two of {c} in turn": _in_turn(c) for c in (1, 3, 16, 29, 35, 64)},
    "two in turn, the second half": _in_turn(58, 58, 58),
    "two in turn, from an odd place": _in_turn(21, 21, 20),
    "two in turn, an odd number": _in_turn(21, 0, 21),
    "backwards": (lambda b, x: _gather(b, x, lambda i: 40 - i, 37), N3, lambda x: x[..., 40:3:-1]),
    "row sums kept": (
        lambda b, x: op.mean(x, [-1], keepdims=True),
        NM,
        lambda x: x.mean(-1, keepdims=True),
    ),
    "middle maximum": (lambda b, x: op.max(x, [1]), N3, lambda x: x.max(1)),
    "minimum of two axes": (lambda b, x: op.min(x, [1, 2]), N3, lambda x: x.min((1, 2))),
    "sum after exp": (lambda b, x: op.sum(op.exp(x), [1]), NM, lambda x: np.exp(x).sum(1)),
    "variance": (lambda b, x: op.variance(x, [1]), NM, lambda x: x.var(1)),
    "slice": (lambda b, x: op.strided_slice(x, [2], [3], [40], [2]), N3, lambda x: x[..., 3:40:2]),
    "compare": (lambda b, x, y: op.greater(x, y), TWO, lambda x, y: x > y),
    "where": (lambda b, x, y: op.where(op.greater(x, y), x, y), TWO, np.maximum),
    "cast": (lambda b, x: op.astype(x, "int32"), NM, lambda x: x.astype("int32")),
    "max pool": (
        lambda b, x: op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1, 1, 1)),
        {"x": ((2, 3, "n", "m"), "float32")},
        lambda x: np.lib.stride_tricks.sliding_window_view(
            np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf), (3, 3), (2, 3)
        )[:, :, ::2, ::2].max((4, 5)),
    ),
    "cumulative sum": (lambda b, x: op.cumsum(x, 1), NM, lambda x: x.cumsum(1)),
    "argmax": (lambda b, x: op.argmax(x, 1), NM, lambda x: x.argmax(1)),
}


@pytest.mark.parametrize("name", CASES)
def test_same_values_as_numpy_for_every_extent(name, compile_graph, draw):
    graph, inputs, reference = CASES[name]
    model = compile_graph(graph, inputs)
    for n, m in [(1, 1), *(tuple(draw.choice(SIZES, 2)) for _ in range(6)), (67, 300)]:
        dims = {"n": n, "m": m}
        arrays = []
        for shape, dtype in inputs.values():
            size = [dims.get(axis, axis) for axis in shape]
            arrays.append(
                draw.standard_normal(size).astype(dtype)
                if dtype == "float32"
                else draw.integers(0, 11, size).astype(dtype)
            )
        want = reference(*(array.astype("float64") for array in arrays))
        got = model(*arrays)
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-5)


def test_a_row_has_the_same_bits_among_others(compile_graph, draw):
    scale, shift = (relax.const(draw.standard_normal(199).astype("float32")) for _ in range(2))
    graphs = (lambda b, x: op.nn.softmax(x), lambda b, x: op.nn.layer_norm(x, scale, shift, [-1]))
    rows = draw.standard_normal((67, 199)).astype("float32")
    for graph in graphs:
        model = compile_graph(graph, {"x": (("n", 199), "float32")})
        batch = model(rows)
        for count in (1, 2, 5):
            np.testing.assert_array_equal(model(rows[:count]), batch[:count])


def test_what_lies_between_the_stages_of_a_row_is_on_the_stack(assembly_for):
    code = assembly_for(lambda b, x: op.nn.softmax(x), {"x": (("n", 128), "float32")}, HOST)
    assert "softmax" in code
    assert not any("AllocWorkspace@" in line for line in code.splitlines())


def test_loads_that_follow_a_pattern_are_vectors():
    graph, inputs, _ = CASES["neighbours are swapped"]
    module = to_kernels(build_module(graph, inputs), HOST, {}, ())
    programs = [func for func in module.functions.values() if isinstance(func, tirx.PrimFunc)]
    assert any("T.Shuffle" in program.script() for program in programs)


@pytest.mark.parametrize("shape", [("n", 3, "m"), (2, 3, 70), ("n", "m", 2, 29)])
def test_strands_are_interleaved_in_registers(shape):
    module = to_kernels(
        build_module(lambda b, x: _axes_swapped(x), {"x": (shape, "float32")}), HOST, {}, ()
    )
    programs = [func for func in module.functions.values() if isinstance(func, tirx.PrimFunc)]
    assert any("T.Shuffle" in program.script() for program in programs)


def _axes_swapped(x: Any) -> Any:
    rank = x.ty.ndim
    return op.permute_dims(x, [*range(rank - 2), rank - 1, rank - 2])


@pytest.mark.parametrize("colours", [2, 3, 4])
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64"])
def test_colours_of_long_images_become_the_last_axis(colours, dtype, compile_graph, draw):
    model = compile_graph(lambda b, x: _axes_swapped(x), {"x": (("n", colours, "m"), dtype)})
    for n, m in [(1, 1), (2, 67), (1, 2048), (2, 2049), (3, 4131)]:
        x = (100 * draw.random((n, colours, m))).astype(dtype)
        np.testing.assert_array_equal(model(x), x.transpose(0, 2, 1))


def test_rows_of_16_bit_floats(compile_graph, draw):
    model = compile_graph(
        lambda builder, x: op.astype(op.sum(op.astype(x, "float16"), [1]), "float32"),
        {"x": (("n", 137), "float32")},
    )
    for n in (1, 4, 9):
        x = draw.integers(-1, 2, (n, 137)).astype("float32")
        np.testing.assert_array_equal(model(x), x.sum(1))


GATED = {"x": (("n", "h", "w", 24), "float32"), "gate": (("n", 1, 1, 24), "float32")}
SCALED = {"x": (("n", "m"), "float32"), "gate": (("n", 1), "float32")}


@pytest.mark.parametrize(("inputs", "sizes"), [(GATED, (1, 9, 10)), (SCALED, (1, 2 * 2048))])
def test_several_threads_take_parts_of_a_single_outer_position(inputs, sizes):
    module = build_module(lambda b, x, gate: op.multiply(x, gate), inputs)
    kernels = to_kernels(module, HOST, {}, ())
    (program,) = (func for func in kernels.functions.values() if isinstance(func, tirx.PrimFunc))
    counts: list[Any] = []

    def visit(node: Any) -> None:
        if str(node.attr_key) == PARALLEL_IF:
            counts.append(node.body.extent)

    tvm_ffi.structural_walk(program.body, (tirx.AttrStmt, visit), order="post")
    known = dict(zip(program.params[0].shape, map(const, sizes), strict=False))
    assert counts
    assert all(int(sym.Analyzer().simplify(substitute(count, known))) >= 2 for count in counts)


@pytest.mark.parametrize("inputs", [GATED, SCALED])
def test_numbers_around_the_ends_of_parts(inputs, compile_graph, draw):
    model = compile_graph(lambda b, x, gate: op.multiply(x, gate), inputs)
    sizes = (
        [(1, 5, 17), (1, 2, 85), (1, 3, 57), (2, 13, 13), (3, 40, 41)]
        if inputs is GATED
        else [(1, 1), (1, 2047), (1, 2048), (2, 2049), (3, 4096), (2, 4111)]
    )
    for n, *rest in sizes:
        tail = (24,) if inputs is GATED else ()
        x = draw.standard_normal((n, *rest, *tail)).astype("float32")
        gate = draw.standard_normal((n, *[1] * len(rest), *tail)).astype("float32")
        np.testing.assert_array_equal(model(x, gate), x * gate)


@pytest.mark.parametrize("extents", [("h", "w"), (200, 256)])
def test_the_error_of_a_long_sum_is_that_of_a_short_one(
    extents: tuple[Any, Any], compile_graph, draw
) -> None:
    """An image with channels last, whose positions are added one after the other: what is added is
    positive, so that one long sum would be 3e-6 to 1e-5 off."""
    model = compile_graph(lambda b, x: op.mean(x, [1, 2]), {"x": (("n", *extents, 24), "float32")})
    for h, w in (
        ((200, 256),) if extents == (200, 256) else ((200, 256), (1, 1), (127, 3), (3, 131))
    ):
        x = draw.random((1, h, w, 24)).astype("float32")
        np.testing.assert_allclose(model(x), x.mean((1, 2), "float64"), rtol=1.5e-6)
