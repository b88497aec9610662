"""The compiled program's random numbers once more, by numpy: what the reference is fed."""

from typing import Any

import numpy as np

from compiler.ir.graph.draws import Draw, Law

Words = np.ndarray[Any, np.dtype[np.uint32]]

_FACTORS = np.array([0xD2511F53, 0xCD9E8D57], np.uint64)
_KEY_STEPS = np.array([0x9E3779B9, 0xBB67AE85], np.uint32)
_DIGITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}


def numbers(draw: Draw, seed: int, count: int) -> np.ndarray[Any, Any]:
    """The first `count` numbers of a draw; those of 16-bit floats before they are rounded, as
    float32.
    """
    index = np.arange(count, dtype=np.uint64)
    streams = np.full(count, draw.stream, np.uint64)
    words = philox(np.stack([*_split(index), *_split(streams)]), _key(seed))
    work = np.dtype("float64" if draw.dtype == "float64" else "float32").type
    if draw.law is Law.UNIFORM:
        standard = _unit(words, _DIGITS[draw.dtype], work)
    else:
        standard = _normal(words, work)
    return np.asarray(standard * work(draw.spread) + work(draw.start))


def philox(counter: Words, key: Words) -> Words:
    """Philox4x32-10: four words for each counter, as rows of uint32."""
    a, b, c, d = counter.astype(np.uint32)
    for number in range(10):
        with np.errstate(over="ignore"):
            k = key + _KEY_STEPS * np.uint32(number)
        low, high = a.astype(np.uint64) * _FACTORS[0], c.astype(np.uint64) * _FACTORS[1]
        (low_word, low_upper), (high_word, high_upper) = _split(low), _split(high)
        a, b, c, d = high_upper ^ b ^ k[0], high_word, low_upper ^ d ^ k[1], low_word
    return np.stack([a, b, c, d])


def _key(seed: int) -> Words:
    return np.array([seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF], np.uint32)


def _split(wide: Any) -> tuple[Words, Words]:
    return wide.astype(np.uint32), (wide >> np.uint64(32)).astype(np.uint32)


def _unit(words: Words, digits: int, work: Any) -> Any:
    if digits <= 32:
        bits = words[0] >> np.uint32(32 - digits)
    else:
        wide = words[:2].astype(np.uint64)
        bits = wide[0] << np.uint64(digits - 32) | wide[1] >> np.uint64(64 - digits)
    return bits.astype(work) * work(2.0**-digits)


def _normal(words: Words, work: Any) -> Any:
    if work is np.float64:
        radius, turn = _unit(words[:2], 53, work) + work(2.0**-53), _unit(words[2:], 53, work)
    else:
        radius = (words[0].astype(work) + work(1)) * work(2.0**-32)
        turn = _unit(words[1:], 24, work)
    return np.sqrt(work(-2) * np.log(radius)) * np.cos(turn * work(2 * np.pi))
