"""Weights that are rounded by the second moments of what they multiply."""

from typing import Any

import numpy as np
import pytest

from compiler.ir.ops.quantized.block_matmul import dequantize
from compiler.ir.ops.quantized.quantize_weights import quantize_table, recover_table
from compiler.quantize.calibration.gptq import calibrate_table, moments_of

Array = np.ndarray[Any, Any]


def rows_of(seed: int, count: int, depth: int) -> Array:
    """Rows whose elements depend on each other, in some directions far more than in others."""
    random = np.random.default_rng(seed)
    mixed = random.standard_normal((depth, depth)) * np.geomspace(3, 0.05, depth)
    return (random.standard_normal((count, depth)) @ mixed).astype(np.float32)


def error_of(quantized: Array, table: Array, rows: Array) -> Array:
    """The change of each column's products, in the square."""
    apart = rows.astype(np.float64) @ (quantized - table).astype(np.float64).T
    return np.asarray(np.square(apart).sum(0))


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("count", "depth"), [(400, 96), (40, 130), (200, 33)])
def test_no_column_is_further_off_than_by_the_nearest(
    bits: int, seed: int, count: int, depth: int
) -> None:
    """With fewer rows than depths, too, and where the last block is not full."""
    table = np.random.default_rng(seed + 100).standard_normal((40, depth)).astype(np.float32)
    rows = rows_of(seed, count, depth)
    calibrated = calibrate_table(table, moments_of(rows), bits)
    ours = error_of(calibrated, table, rows)
    nearest = error_of(dequantize(quantize_table(table, bits)), table, rows)
    assert (ours <= nearest * (1 + 1e-9)).all()
    assert ours.sum() < 0.7 * nearest.sum()


def test_the_error_goes_to_what_follows() -> None:
    """Two depths that are always equal: the second makes up for what the first is off by.

    By either scale, 1 or 0.875, each 0.4 goes to 0 alone; both together are nearest to 0.875.
    """
    table = np.array([[7.0, 0.4, 0.4]], np.float32)
    rows = np.random.default_rng(0).standard_normal((50, 2)).astype(np.float32)[:, [0, 1, 1]]
    calibrated = calibrate_table(table, moments_of(rows), 4)
    np.testing.assert_array_equal(calibrated, [[7.0, 0.0, 0.875]])


def test_depths_without_any_relation_go_to_the_nearest() -> None:
    table = np.random.default_rng(0).standard_normal((20, 64)).astype(np.float32)
    result = calibrate_table(table, np.eye(64), 4)
    blocks = recover_table(result, 4, 1e-6)
    assert blocks is not None
    assert blocks.scales is not None
    scale = blocks.scales.repeat(32, axis=1)
    np.testing.assert_allclose(result, np.clip(np.rint(table / scale), -8, 7) * scale, rtol=1e-6)
    nearest = dequantize(quantize_table(table, 4))
    assert np.square(result - table).sum() < np.square(nearest - table).sum()


def test_depths_that_no_row_reaches() -> None:
    """The moments have zeros in their diagonal, and no inverse but for the damping."""
    table = np.random.default_rng(1).standard_normal((20, 96)).astype(np.float32)
    rows = rows_of(1, 30, 96)
    rows[:, 10:50] = 0
    calibrated = calibrate_table(table, moments_of(rows), 4)
    assert np.isfinite(calibrated).all()
    nearest = dequantize(quantize_table(table, 4))
    assert error_of(calibrated, table, rows).sum() < error_of(nearest, table, rows).sum()


def test_rows_that_are_not_finite_are_left_out() -> None:
    rows = rows_of(2, 50, 40).reshape(5, 10, 40)
    other = rows.copy()
    other[1, 3, 7], other[4, 0, 0] = np.inf, np.nan
    finite = np.delete(rows.reshape(-1, 40), [13, 40], axis=0)
    np.testing.assert_allclose(moments_of(other), moments_of(finite), rtol=1e-12)


@pytest.mark.parametrize("bits", [4, 8])
def test_the_blocks_of_a_quantized_matrix_are_found_again(bits: int) -> None:
    table = np.random.default_rng(3).standard_normal((50, 70)).astype(np.float32)
    table[4, 32:64] = 0
    calibrated = calibrate_table(table, moments_of(rows_of(3, 90, 70)), bits)
    blocks = recover_table(calibrated, bits, 1e-6)
    assert blocks is not None
    np.testing.assert_allclose(dequantize(blocks), calibrated, rtol=1e-6, atol=0)
    assert recover_table(table, bits, 1e-6) is None
