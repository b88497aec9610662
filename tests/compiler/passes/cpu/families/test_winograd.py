import numpy as np
import pytest
from tvm import relax

from compiler.passes.cpu.families.winograd import plan
from compiler.passes.cpu.families.winograd.program import (
    INPUT,
    OUTPUT,
    WEIGHT,
    factor_transform,
    transform_weights,
)
from compiler.passes.cpu.families.winograd.tile import chunk_of, tiles_of, width_of
from compiler.passes.pack import conv
from compiler.passes.pack.conv import Window, suits_winograd
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.exprs import const
from tests.compiler.passes.references import convolution

op = relax.op


def test_the_three_matrices_compute_a_correlation(draw):
    x, w = draw.standard_normal(6), draw.standard_normal(3)
    np.testing.assert_allclose(
        OUTPUT @ ((WEIGHT @ w) * (INPUT @ x)), np.correlate(x, w, "valid"), atol=1e-12
    )


def test_errors_of_the_points_grow_little_in_the_output_transform():
    """Variances of the 4x4 results over those of the direct form's sums of nine, for independent
    operands and an equal relative error of each of the 36 products."""
    points = np.square(np.linalg.norm(INPUT, axis=1) * np.linalg.norm(WEIGHT, axis=1))
    factors = np.square(OUTPUT)
    errors = np.sqrt(np.einsum("iu,jv,uv->ij", factors, factors, np.outer(points, points)) / 9)
    # The points 0, 1, -1, 2, -2 give 10.8 and 31.4.
    assert np.sqrt(np.square(errors).mean()) < 4.77
    assert errors.max() < 7.14


@pytest.mark.parametrize(("matrix", "operations"), [(INPUT, 12), (OUTPUT, 10)])
def test_factors_multiply_to_the_matrix(matrix, operations):
    shared, rows = factor_transform(matrix)
    np.testing.assert_array_equal(rows[:, : len(shared)] @ shared + rows[:, len(shared) :], matrix)
    # A sum of n terms takes n - 1 multiply-adds.
    assert sum(np.count_nonzero(factors) - 1 for factors in (*shared, *rows)) == operations


def test_weights_come_in_panels_the_last_one_filled_with_zeros(draw):
    weight = draw.standard_normal((24, 3, 3, 5)).astype("float32")
    packed = transform_weights(weight, 16)
    assert packed.shape == (36, 2, 5, 16)
    assert not packed[:, 1, :, 8:].any()
    want = WEIGHT @ weight[17, :, :, 2].astype("float64") @ WEIGHT.T
    np.testing.assert_allclose(packed[:, 1, 2, 1], want.reshape(-1), rtol=1e-6)


def test_uneven_padding_at_extents_around_tiles_and_blocks(compile_graph, draw):
    channels, out, pads = 24, 40, (2, 0, 1, 3)
    w = (draw.standard_normal((out, channels, 3, 3)) * 0.2).astype("float32")
    bias = draw.standard_normal((1, out, 1, 1)).astype("float32")

    def graph(builder, x):
        return op.nn.relu(op.add(op.nn.conv2d(x, relax.const(w), padding=pads), relax.const(bias)))

    model = compile_graph(graph, {"x": (("n", channels, "h", "w"), "float32")})
    samples = [
        tuple(int(extent) for extent in draw.integers((1, 3, 3), (4, 40, 40))) for _ in range(4)
    ]
    for n, h, width in [
        (1, 3, 3),
        (1, 4, 5),
        (2, 6, 7),
        (1, 16, 17),
        (1, 23, 31),
        (3, 13, 8),
        *samples,
    ]:
        x = draw.standard_normal((n, channels, h, width)).astype("float32")
        exact = (
            convolution(x.astype("float64"), w.astype("float64"), (1, 1), pads, (1, 1), 1) + bias
        )
        np.testing.assert_allclose(model(x), np.maximum(exact, 0), rtol=1e-4, atol=2e-4)


def test_the_kernel_is_chosen_where_it_is_faster(compile_graph, draw):
    from compiler.passes.manager import lower
    from tests.compiler.conftest import HOST, build_module

    def names(channels, extent, strides):
        w = relax.const(draw.standard_normal((16, channels, 3, 3)).astype("float32"))
        module = build_module(
            lambda builder, x: op.nn.conv2d(x, w, strides, (1, 1)),
            {"x": (("n", channels, extent, extent), "float32")},
        )
        return [gvar.name_hint for gvar in lower(module, HOST, {}).functions]

    assert "winograd_conv" in names(16, 32, (1, 1))
    assert "winograd_conv" not in names(16, 7, (1, 1))
    assert "winograd_conv" not in names(16, 32, (2, 2))
    assert "winograd_conv" not in names(12, 32, (1, 1))


@pytest.mark.parametrize(
    ("channels", "columns", "paid"),
    [(96, 24, True), (24, 40, True), (96, 20, False), (8, 24, False)],
)
def test_a_transform_in_half_vectors_is_profitable(channels, columns, paid):
    unit, window = VectorUnit(512, 32, True), Window((3, 3), (1, 1), (1, 1), (1, 1, 1, 1))
    extents = (const(1), const(32), const(32))
    assert suits_winograd(unit, {}, extents, columns, channels, window) is paid


@pytest.mark.parametrize("l2", [128 << 10, 512 << 10, 2 << 20])
def test_blocks_hold_whole_groups_of_rows(l2):
    sizes = [
        tiles_of(VectorUnit(256, 16, True, l2=l2), depth, depth) for depth in (16, 64, 256, 512)
    ]
    assert all(size % plan.ROWS == 0 and size >= plan.ROWS for size in sizes)
    assert sizes == sorted(sizes, reverse=True)


def test_panels_of_wide_vectors_leave_few_columns_empty():
    avx512, avx2 = VectorUnit(512, 32, True), VectorUnit(256, 16, True)
    assert [width_of(avx512, columns) for columns in (16, 48, 64, 96, 256)] == [32, 48, 32, 32, 32]
    assert [width_of(avx2, columns) for columns in (16, 48, 64)] == [16, 24, 16]


@pytest.mark.parametrize("extent", [12, 16, 32])
def test_columns_are_shared_out_where_weights_are_large(compile_graph, draw, extent):
    """All tiles in one block and halves of the columns, the last panel part empty; and blocks."""
    channels, out = 128, 208
    w = (draw.standard_normal((out, channels, 3, 3)) * 0.05).astype("float32")

    def graph(builder, x):
        return op.nn.relu(op.nn.conv2d(x, relax.const(w), padding=(1, 1, 1, 1)))

    model = compile_graph(graph, {"x": (("n", channels, extent, extent), "float32")})
    for images in (1, 2, 3) if extent < 32 else (1,):
        x = draw.standard_normal((images, channels, extent, extent)).astype("float32")
        exact = convolution(
            x.astype("float64"), w.astype("float64"), (1, 1), (1, 1, 1, 1), (1, 1), 1
        )
        np.testing.assert_allclose(model(x), np.maximum(exact, 0), rtol=1e-4, atol=5e-4)


@pytest.mark.parametrize("depth", [16, 24, 64, 72, 96, 128, 136, 296, 512, 536])
def test_chunks_have_all_channels(depth):
    chunk = chunk_of(depth)
    assert depth % chunk == 0
    assert chunk <= plan.CHUNK or chunk == depth == 536


@pytest.mark.parametrize(("channels", "ratio"), [(16, 3), (64, 4.4), (136, 3.6), (256, 4.3)])
def test_the_error_is_near_that_of_the_direct_form(
    compile_graph, draw, monkeypatch, channels, ratio
):
    """Compare with float64, for the output of a Relu and weights of independent noise, beside the
    direct form, which adds up its sums in chunks: of a trained net's weights, which differ less
    from one place of the window to the next, errors are smaller.
    """
    w = (draw.standard_normal((32, channels, 3, 3)) / np.sqrt(9 * channels)).astype("float32")
    x = np.maximum(draw.standard_normal((1, channels, 24, 25)), 0).astype("float32")
    exact = convolution(x.astype("float64"), w.astype("float64"), (1, 1), (1, 1, 1, 1), (1, 1), 1)

    def error():
        model = compile_graph(
            lambda builder, x: op.nn.conv2d(x, relax.const(w), padding=(1, 1, 1, 1)),
            {"x": (("n", channels, "h", "w"), "float32")},
        )
        return np.sqrt(np.square(model(x) - exact).mean())

    measured = error()
    monkeypatch.setattr(conv, "suits_winograd", lambda *arguments: False)
    direct = error()
    assert 0 < measured < ratio * direct
