"""The narrow element types, each bit pattern and float32 edge beside ml_dtypes."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import te

from compiler.ir import formats
from compiler.ir.formats import EXPONENTS, FLOATS, WIDTHS

Array = np.ndarray[Any, Any]
ALL_FLOATS = (*FLOATS, EXPONENTS)


def compute(scalar: Callable[[Any], Any], x: Array, dtype: str) -> Array:
    """`scalar` of every element, compiled."""
    data = te.placeholder(x.shape, x.dtype.name, name="x")
    result = te.compute(x.shape, lambda i: scalar(data[i]), name="y")
    kernel = tvm.compile(te.create_prim_func([data, result]), target="llvm")
    out = tvm.runtime.empty(x.shape, dtype)
    kernel(tvm.runtime.tensor(x), out)
    return out.numpy()


def patterns(dtype: str) -> Array:
    """Every bit pattern of a type."""
    return np.arange(1 << formats.width_of(dtype), dtype=np.uint8)


def numbers_of(dtype: str) -> Array:
    """The numbers of the type, the middles between neighbours, what lies just beside both; float32
    edges; and a sample of all float32.
    """
    own = patterns(dtype).view(dtype).astype(np.float32)
    own = np.unique(own[np.isfinite(own)])
    middle = ((own[1:].astype(np.float64) + own[:-1]) / 2).astype(np.float32)
    with np.errstate(over="ignore"):
        beyond = own[-1] * np.array([1.0, 1.03, 1.0357142, 1.1, 1.25, 1.5, 2.0], np.float32)
    edges = np.array([0, 1e-45, 1e-38, 2**-126, 3.4e38, np.inf, np.nan], np.float32)
    close = np.concatenate([own, middle, beyond, edges])
    with np.errstate(over="ignore"):
        near = [np.nextafter(close, np.float32(side)) for side in (np.inf, -np.inf)]
    noise = np.random.default_rng(0).integers(0, 1 << 32, 20000, dtype=np.uint32).view(np.float32)
    every = np.concatenate([close, *near, noise])
    return np.concatenate([every, -every])


@pytest.mark.parametrize("dtype", ALL_FLOATS)
def test_every_pattern_is_read(dtype: str) -> None:
    codes = patterns(dtype)
    got = compute(lambda byte: formats.decode(byte, dtype), codes, "float32")
    want = codes.view(dtype).astype(np.float32)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(
        np.signbit(got)[~np.isnan(want)], np.signbit(want)[~np.isnan(want)]
    )


@pytest.mark.parametrize("dtype", FLOATS)
def test_casts_round_and_overflow_as_ml_dtypes_does(dtype: str) -> None:
    x = numbers_of(dtype)
    got = compute(lambda item: formats.encode(item, dtype, False), x, "uint8")
    same_patterns(got, cast_by_ml_dtypes(x, dtype), dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_saturating_casts_stop_at_the_greatest_number(dtype: str) -> None:
    x = numbers_of(dtype)
    got = compute(lambda item: formats.encode(item, dtype, True), x, "uint8")
    top = np.float32(ml_dtypes.finfo(dtype).max)
    same_patterns(got, cast_by_ml_dtypes(np.clip(x, -top, top), dtype), dtype)


def cast_by_ml_dtypes(x: Array, dtype: str) -> Array:
    """The patterns that ml_dtypes gives."""
    with np.errstate(invalid="ignore", over="ignore"):
        return x.astype(dtype).view(np.uint8)


def same_patterns(got: Array, want: Array, dtype: str) -> None:
    """Equal, any NaN for any other."""
    nan = np.isnan(want.view(dtype).astype(np.float32))
    np.testing.assert_array_equal(got[~nan], want[~nan])
    assert np.isnan(got[nan].view(dtype).astype(np.float32)).all()


def exponent_of(x: float, saturate: bool, round_mode: str) -> int:
    """The specification's table in Python's numbers: the pattern n means 2^(n - 127)."""
    x = float(x)
    if np.isnan(x):
        return 255
    if x > 2.0**127:
        # By `down`, what is finite lies below the end of the range.
        beyond = (
            np.isinf(x) or round_mode == "up" or (round_mode == "nearest" and x >= 1.5 * 2.0**127)
        )
        return 254 if saturate or not beyond else 255
    if x < 2.0**-127:
        return 0 if saturate else 255
    low = int(np.floor(np.log2(x)))
    part = x / 2.0**low
    up = {"up": part > 1, "down": False, "nearest": part >= 1.5}[round_mode]
    return low + 127 + int(up)


@pytest.mark.parametrize("round_mode", ["up", "down", "nearest"])
@pytest.mark.parametrize("saturate", [True, False])
def test_powers_of_two(saturate: bool, round_mode: str) -> None:
    x = numbers_of(EXPONENTS)
    got = compute(lambda item: formats.encode(item, EXPONENTS, saturate, round_mode), x, "uint8")
    want = np.array([exponent_of(item, saturate, round_mode) for item in x], np.uint8)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("source", ["int8", "uint8", "int16", "int64", "uint64"])
@pytest.mark.parametrize("dtype", WIDTHS)
def test_integers_keep_their_lowest_bits(dtype: str, source: str) -> None:
    info = np.iinfo(source)
    ends = [info.min, info.min + 1, info.max, info.max - 1]
    x = np.array([*range(128), *ends], dtype=source)
    got = compute(lambda item: formats.wrap(item, dtype), x, "uint8" if dtype[0] == "u" else "int8")
    np.testing.assert_array_equal(got, x.astype(dtype).astype(got.dtype))


@pytest.mark.parametrize("dtype", WIDTHS)
def test_limits(dtype: str) -> None:
    info = ml_dtypes.iinfo(dtype)
    assert formats.limits_of(dtype) == (info.min, info.max)
