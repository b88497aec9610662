"""The generator gives the published numbers, and what is made of them has its distribution."""

import math

import numpy as np
import pytest

from compiler.ir.graph.draws import Draw, Law, stream_of
from compiler.verify.reference.numbers import numbers, philox

COUNT = 100_000


@pytest.mark.parametrize(
    ("counter", "key", "wanted"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (
            (0xFFFFFFFF,) * 4,
            (0xFFFFFFFF,) * 2,
            (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        ),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_the_authors_own_vectors(
    counter: tuple[int, ...], key: tuple[int, ...], wanted: tuple[int, ...]
) -> None:
    """`philox4x32 10` in kat_vectors of the Random123 library."""
    words = philox(np.array(counter, np.uint32)[:, None], np.array(key, np.uint32))
    assert words[:, 0].tolist() == list(wanted)


def _normal_cdf(x: np.ndarray) -> np.ndarray:
    return np.array([0.5 * (1 + math.erf(value / math.sqrt(2))) for value in x])


def _kolmogorov(x: np.ndarray, cdf: np.ndarray) -> float:
    """The statistic times the root of the count: above 1.95 once in a thousand tests."""
    step = np.arange(len(x) + 1) / len(x)
    return max(np.abs(step[1:] - cdf).max(), np.abs(step[:-1] - cdf).max()) * math.sqrt(len(x))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("law", Law)
@pytest.mark.parametrize("seed", [0, 1, -5, 1 << 40])
def test_distributions(law: Law, dtype: str, seed: int) -> None:
    x = np.sort(numbers(Draw(stream_of("a"), law, dtype), seed, COUNT).astype("float64"))
    mean, deviation = (0.5, math.sqrt(1 / 12)) if law is Law.UNIFORM else (0.0, 1.0)
    assert abs(x.mean() - mean) < 5 * deviation / math.sqrt(COUNT)
    assert x.std() == pytest.approx(deviation, rel=0.02)
    assert _kolmogorov(x, x if law is Law.UNIFORM else _normal_cdf(x)) < 1.95


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_uniform_numbers_stay_below_one(dtype: str) -> None:
    import ml_dtypes

    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    x = numbers(Draw(1, Law.UNIFORM, dtype), 0, COUNT).astype(kind).astype("float64")
    assert x.min() >= 0
    assert x.max() < 1


def test_start_and_spread() -> None:
    plain = numbers(Draw(3, Law.NORMAL, "float64"), 0, 100)
    moved = numbers(Draw(3, Law.NORMAL, "float64", -2.0, 0.5), 0, 100)
    np.testing.assert_allclose(moved, plain * 0.5 - 2, rtol=1e-14, atol=1e-14)


def test_streams_seeds_and_neighbours_are_independent() -> None:
    draws = [
        numbers(Draw(stream_of(label), Law.NORMAL, "float64"), seed, COUNT)
        for label, seed in (("a", 0), ("b", 0), ("a", 1))
    ]
    draws.append(np.roll(draws[0], 1))
    correlation = np.corrcoef(draws) - np.eye(len(draws))
    assert np.abs(correlation).max() < 5 / math.sqrt(COUNT)


def test_a_number_depends_on_its_position_alone() -> None:
    draw = Draw(9, Law.UNIFORM, "float32")
    np.testing.assert_array_equal(numbers(draw, 4, 10), numbers(draw, 4, 1000)[:10])
