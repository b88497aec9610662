"""Block-wise quantized matrices, beside the definition written out in float64."""

import numpy as np
import pytest

from compiler.ir.ops.quantized.block_matmul import dequantize
from compiler.ir.ops.quantized.quantize_weights import (
    BLOCK,
    bytes_of,
    objection,
    quantize_matrix,
    quantize_table,
)
from relaxd.contract.options import WeightForm

SHAPES = [(1, 1), (1, 32), (3, 31), (5, 33), (37, 97), (2, 64), (700, 400)]


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def nearest(block: np.ndarray, bits: int) -> float:
    """The least squared error of a block over the two scales."""
    half = 1 << (bits - 1)
    greatest = block[np.abs(block).argmax()]
    errors = []
    for scale in (greatest / -half, greatest / (half - 1)):
        integers = np.clip(np.rint(block / scale), -half, half - 1)
        errors.append(float(np.square(integers * scale - block).sum()))
    return min(errors)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bits", [4, 8])
def test_each_number_goes_to_the_nearest_of_its_block(shape: tuple[int, int], bits: int) -> None:
    table = normal(*shape)
    quantized = quantize_table(table, bits)
    blocks = -(-shape[1] // BLOCK)
    assert quantized.numbers.shape == (shape[0], blocks, BLOCK * bits // 8)
    assert quantized.scales is not None
    assert quantized.scales.shape == (shape[0], blocks)
    apart = np.square(dequantize(quantized).astype(np.float64) - table)
    for row in range(min(shape[0], 40)):
        for block in range(blocks):
            part = slice(block * BLOCK, (block + 1) * BLOCK)
            want = nearest(table[row, part].astype(np.float64), bits)
            assert apart[row, part].sum() <= want * 1.001 + 1e-12


@pytest.mark.parametrize("bits", [4, 8, 16])
def test_what_is_quantized_already_stays(bits: int) -> None:
    once = dequantize(quantize_table(normal(64, 100), bits))
    np.testing.assert_allclose(dequantize(quantize_table(once, bits)), once, rtol=1e-6, atol=0)


@pytest.mark.parametrize("bits", [4, 8])
def test_zeros_and_tiny_numbers(bits: int) -> None:
    table = np.zeros((3, 64), np.float32)
    table[1] = 1e-42
    table[2, 0] = 5.0
    real = dequantize(quantize_table(table, bits))
    assert not real[0].any()
    assert np.isfinite(real).all()
    assert real[2, 0] == np.float32(5.0)
    assert not real[2, 1:].any()


def test_blocks_go_along_the_axis() -> None:
    table = normal(40, 70)
    for form in (WeightForm.INT4, WeightForm.INT8):
        np.testing.assert_array_equal(
            quantize_matrix(table.T, form, 0), quantize_matrix(table, form, 1).T
        )
        assert not np.allclose(
            quantize_matrix(table, form, 0), quantize_matrix(table, form, 1), rtol=1e-6
        )
    float16 = quantize_matrix(table, WeightForm.FLOAT16, 0)
    np.testing.assert_array_equal(float16, table.astype(np.float16).astype(np.float32))


def test_what_cannot_be_quantized() -> None:
    for odd in (np.inf, np.nan):
        assert "finite" in str(objection(np.array([[1, odd]], np.float32), WeightForm.INT4))
    large = np.array([[1e5]], np.float32)
    assert "float16" in str(objection(large, WeightForm.FLOAT16))
    assert objection(large, WeightForm.INT4) is None


def test_bytes_are_those_of_numbers_and_scales() -> None:
    for form, bits in ((WeightForm.INT4, 4), (WeightForm.INT8, 8), (WeightForm.FLOAT16, 16)):
        quantized = quantize_table(normal(5, 70), bits)
        size = sum(tensor.data.nbytes for tensor in quantized.tensors)
        assert bytes_of(form, 5, 70) == size
