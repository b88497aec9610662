"""Rows of floats as bytes with a scale behind them."""

import numpy as np
import pytest

from relaxd.contract.bundle.byte_rows import LEAST, MOST, SCALE_BYTES
from relaxd.loader import byte_rows
from relaxd.loader.byte_rows import dequantize_rows, quantize_rows


@pytest.mark.parametrize("size", [1, 2, 7, 8, 64, 127])
def test_numbers_are_within_half_a_step(size: int) -> None:
    rows = np.random.default_rng(size).standard_normal((2, 3, 5, size)).astype(np.float32)
    stored = quantize_rows(rows)
    assert (stored.dtype, stored.shape) == (np.int8, (2, 3, 5, size + SCALE_BYTES))
    greatest = np.abs(rows).max(-1, keepdims=True)
    assert (np.abs(stored[..., :size]).max(-1) == MOST).all()
    assert (np.abs(dequantize_rows(stored) - rows) <= greatest / MOST * 0.5001).all()


def test_the_even_one_of_two_that_are_as_near() -> None:
    row = np.array([127, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5], np.float32)
    stored = quantize_rows(row)
    assert stored[:-SCALE_BYTES].tolist() == [127, 0, 2, 2, 0, -2, -2]
    assert stored[-SCALE_BYTES:].tobytes() == np.float32(1).astype("<f4").tobytes()


def test_rows_that_are_as_good_as_zeros() -> None:
    rows = np.array([[0, -0.0], [np.float32(LEAST) / 2, 0], [LEAST, 0]], np.float32)
    stored = quantize_rows(rows)
    assert not stored[:2].any()
    np.testing.assert_allclose(dequantize_rows(stored[2]), rows[2], rtol=1e-6)


@pytest.mark.parametrize("strange", [np.inf, -np.inf, np.nan])
def test_a_number_that_is_not_finite_takes_its_row(strange: float) -> None:
    rows = np.ones((2, 8), np.float32)
    rows[1, 3] = strange
    stored = quantize_rows(rows)
    assert not stored[1, :-SCALE_BYTES].any()
    real = dequantize_rows(stored)
    assert (real[0] == 1).all()
    assert np.isnan(real[1]).all()


def test_the_greatest_numbers() -> None:
    row = np.array([3.4e38, -3.4e38, 0], np.float32)
    np.testing.assert_allclose(dequantize_rows(quantize_rows(row)), row, rtol=1e-6)
    with np.errstate(over="raise"):
        dequantize_rows(quantize_rows(np.full(4, np.finfo(np.float32).max)))


def test_names_of_before_warn() -> None:
    rows = np.array([1.0, -2.0], np.float32)
    with pytest.warns(DeprecationWarning, match="widened is dequantize_rows now"):
        widened = byte_rows.widened
    np.testing.assert_array_equal(
        widened(quantize_rows(rows)), dequantize_rows(quantize_rows(rows))
    )
