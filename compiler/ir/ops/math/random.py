"""Random numbers by the counter-based generator Philox4x32-10.

J. Salmon, M. Moraes, R. Dror, D. Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC 2011). The
key is the seed; the counter is the number of the element and the stream of the node. So a number
depends on neither threads nor vectors nor on what was drawn before it.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import te, tirx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.draws import Draw, Law
from compiler.ir.graph.values import Value
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.pointwise.programs import HALF_PRECISION
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent
from compiler.tir.exprs import let_in

ROUNDS = 10
FACTORS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
DIGITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
"""Of a uniform number in binary: as many as its dtype holds, so that none is rounded up to 1."""

Words = tuple[Any, Any, Any, Any]


def draw(b: Builder, numbers: Draw, shape: Sequence[Extent]) -> Value:
    """A tensor of independent numbers; 16-bit floats are worked out in float32."""
    count = b.facts.simplify(ex.prod(shape))
    work = "float32" if numbers.dtype in HALF_PRECISION else numbers.dtype
    law = {Law.UNIFORM: _uniform, Law.NORMAL: _normal}[numbers.law]

    def element(seed: te.Tensor, index: Any) -> Any:
        counter = (*_split(index), *_split(tirx.const(numbers.stream, "uint64")))
        return philox(counter, _split(seed()), lambda words: law(words, numbers, work))

    b.random = True
    flat = b.te(
        lambda seed: te.compute([ex.prim(count)], lambda i: element(seed, i), name="random"),
        b.seed,
        name=f"random_{numbers.law}",
    )
    return ew.cast(b, layout.reshape(b, flat, shape), numbers.dtype)


def philox(counter: Words, key: tuple[Any, Any], use: Callable[[Words], Any]) -> Any:
    """`use` of the four words that Philox4x32-10 makes of a counter; all words are uint32."""

    def round_of(number: int, c: Words) -> Any:
        if number == ROUNDS:
            return use(c)
        k = [
            part + tirx.const((step * number) % (1 << 32), "uint32")
            for part, step in zip(key, KEY_STEPS, strict=True)
        ]
        return let_in(
            "low",
            _wide(c[0]) * tirx.const(FACTORS[0], "uint64"),
            lambda low: let_in(
                "high",
                _wide(c[2]) * tirx.const(FACTORS[1], "uint64"),
                lambda high: round_of(
                    number + 1,
                    (
                        _upper(high) ^ c[1] ^ k[0],
                        _word(high),
                        _upper(low) ^ c[3] ^ k[1],
                        _word(low),
                    ),
                ),
            ),
        )

    return round_of(0, counter)


def _uniform(words: Words, numbers: Draw, dtype: str) -> Any:
    unit = _unit(words[:2], DIGITS[numbers.dtype], dtype)
    return unit * tirx.const(numbers.spread, dtype) + tirx.const(numbers.start, dtype)


def _unit(words: Sequence[Any], digits: int, dtype: str) -> Any:
    """A number in [0, 1) of so many binary digits."""
    if digits <= 32:
        bits = words[0] >> tirx.const(32 - digits, "uint32")
    else:
        low = _wide(words[1]) >> tirx.const(64 - digits, "uint64")
        bits = (_wide(words[0]) << tirx.const(digits - 32, "uint64")) | low
    return tirx.Cast(dtype, bits) * tirx.const(2.0**-digits, dtype)


def _normal(words: Words, numbers: Draw, dtype: str) -> Any:
    """By the transformation of Box and Muller, whose logarithm must not see 0."""
    digits = DIGITS[dtype]
    if dtype == "float64":
        radius = _unit(words[:2], digits, dtype) + tirx.const(2.0**-digits, dtype)
        turn = _unit(words[2:], digits, dtype)
    else:
        # All 32 bits: near 0 a float32 has room for them, and they make the tails longer.
        radius = (tirx.Cast(dtype, words[0]) + tirx.const(1, dtype)) * tirx.const(2.0**-32, dtype)
        turn = _unit(words[1:2], digits, dtype)
    length = tirx.sqrt(tirx.const(-2, dtype) * tirx.log(radius))
    standard = length * tirx.cos(turn * tirx.const(2 * math.pi, dtype))
    return standard * tirx.const(numbers.spread, dtype) + tirx.const(numbers.start, dtype)


def _split(number: Any) -> tuple[Any, Any]:
    """The lower and the upper 32 bits of an integer of 64."""
    wide = tirx.Cast("uint64", number)
    return _word(wide), _upper(wide)


def _upper(wide: Any) -> Any:
    return _word(wide >> tirx.const(32, "uint64"))


def _word(wide: Any) -> Any:
    # TVM folds the cast of a constant without cutting it.
    return tirx.Cast("uint32", wide & tirx.const(0xFFFFFFFF, "uint64"))


def _wide(word: Any) -> Any:
    return tirx.Cast("uint64", word)
