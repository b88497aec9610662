"""llama.cpp's block-wise quantized formats: the integers of a block, its scale and its least
value.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from compiler.ir.decoders.quantized import Array

_LOW = np.uint8(15)


@dataclass(frozen=True)
class Parts:
    """numbers: uint8 [..., blocks, block], of `bits` bits; scales: float32 [..., blocks].

    least: float32 [..., blocks]: a number means number * scale + least; None where it means
    (number - half of the range) * scale.
    """

    bits: int
    numbers: Array
    scales: Array
    least: Array | None = None


@dataclass(frozen=True)
class Format:
    """`size` bytes hold `count` numbers; read: takes uint8 [..., size]."""

    size: int
    count: int
    read: Callable[[Array], Parts]


def _float16_at(data: Array, offset: int) -> Array:
    """The float16 at a byte of every group, as float32 [..., 1]."""
    return np.ascontiguousarray(data[..., offset : offset + 2]).view("<f2").astype(np.float32)


def _nibbles(data: Array) -> Array:
    """[..., 1, numbers] of bytes that hold number i and number i + half of all."""
    return np.concatenate([data & _LOW, data >> 4], -1)[..., None, :]


def _q4_0(data: Array) -> Parts:
    return Parts(4, _nibbles(data[..., 2:]), _float16_at(data, 0))


def _q4_1(data: Array) -> Parts:
    return Parts(4, _nibbles(data[..., 4:]), _float16_at(data, 0), _float16_at(data, 2))


def _fives(few: Array, fifth: Array) -> Array:
    """Numbers of five bits, of which the last ones lie apart: bit i of 32 is number i's."""
    bits = np.unpackbits(fifth, axis=-1, bitorder="little")[..., None, :]
    return np.asarray(_nibbles(few) | bits << np.uint8(4))


def _q5_0(data: Array) -> Parts:
    # Those around 16 become those around 128.
    return Parts(8, _fives(data[..., 6:], data[..., 2:6]) + np.uint8(112), _float16_at(data, 0))


def _q5_1(data: Array) -> Parts:
    return Parts(
        8, _fives(data[..., 8:], data[..., 4:8]), _float16_at(data, 0), _float16_at(data, 2)
    )


def _q8_0(data: Array) -> Parts:
    # Signed numbers become those around 128.
    return Parts(8, (data[..., 2:] ^ np.uint8(128))[..., None, :], _float16_at(data, 0))


def _sixes(data: Array) -> tuple[Array, Array]:
    """Scales and least values [..., 8] of six bits: four bytes hold those of the first four blocks
    each, whose upper two bits are those of the others; four more hold the others' lower four.
    """
    one, two, both = data[..., :4], data[..., 4:8], data[..., 8:]
    high = np.uint8(0x30)
    scales = np.concatenate([one & 63, both & _LOW | one >> 2 & high], -1)
    least = np.concatenate([two & 63, both >> 4 | two >> 2 & high], -1)
    return scales, least


def _eight_blocks(data: Array, numbers: Array, bits: int) -> Parts:
    """Groups of eight blocks, whose scales and least values have a scale of their own."""
    scales, least = _sixes(data[..., 4:16])
    return Parts(bits, numbers, _float16_at(data, 0) * scales, -(_float16_at(data, 2) * least))


def _lows(data: Array, width: int) -> Array:
    """[..., blocks, width] of bytes whose lower halves are a block, and the upper the next one."""
    parts = data.reshape(*data.shape[:-1], -1, width)
    pairs = np.stack([parts & _LOW, parts >> 4], -2)
    return pairs.reshape(*data.shape[:-1], -1, width)


def _q4_k(data: Array) -> Parts:
    return _eight_blocks(data, _lows(data[..., 16:], 32), 4)


def _q5_k(data: Array) -> Parts:
    # Bit i of a byte is the fifth of a number of block i.
    shifts = np.arange(8, dtype=np.uint8)[:, None]
    fifth = data[..., None, 16:48] >> shifts & np.uint8(1)
    return _eight_blocks(data, _lows(data[..., 48:], 32) | fifth << np.uint8(4), 8)


def _q6_k(data: Array) -> Parts:
    start = data.shape[:-1]
    # Each half of a group: 64 bytes whose lower halves are 64 numbers, then their upper ones, and
    # 32 bytes with the upper bits of four numbers each, which lie 32 apart.
    low = data[..., :128].reshape(*start, 2, 64)
    low = np.concatenate([low & _LOW, low >> 4], -1)
    shifts = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    high = data[..., 128:192].reshape(*start, 2, 1, 32) >> shifts & np.uint8(3)
    numbers = low | high.reshape(*start, 2, 128) << np.uint8(4)
    scales = _float16_at(data, 208) * data[..., 192:208].view(np.int8)
    # Those around 32 become those around 128.
    return Parts(8, numbers.reshape(*start, 16, 16) + np.uint8(96), scales)


FORMATS = {
    2: Format(18, 32, _q4_0),
    3: Format(20, 32, _q4_1),
    6: Format(22, 32, _q5_0),
    7: Format(24, 32, _q5_1),
    8: Format(34, 32, _q8_0),
    12: Format(144, 256, _q4_k),
    13: Format(176, 256, _q5_k),
    14: Format(210, 256, _q6_k),
}
"""By llama.cpp's number: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K."""
