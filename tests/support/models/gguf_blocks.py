"""Blocks of llama.cpp's formats drawn at random, and what each of their numbers means."""

import struct
from collections.abc import Iterator

import numpy as np

Q5_0, Q5_1, Q4_K, Q5_K, Q6_K = 6, 7, 12, 13, 14
SIZES = {Q5_0: (22, 32), Q5_1: (24, 32), Q4_K: (144, 256), Q5_K: (176, 256), Q6_K: (210, 256)}
"""Bytes and numbers of a group."""
_SCALES = {Q5_0: (0,), Q5_1: (0, 2), Q4_K: (0, 2), Q5_K: (0, 2), Q6_K: (208,)}
_MOST = {Q5_0: 16, Q5_1: 16, Q4_K: 63 * 15, Q5_K: 63 * 31, Q6_K: 128 * 32}
"""Times its scale, the greatest number."""


def draw_blocks(kind: int, count: int, magnitude: float, seed: int) -> bytes:
    """So many numbers in groups of any bytes, up to about a magnitude."""
    size, numbers = SIZES[kind]
    draw = np.random.default_rng(seed)
    stored = draw.integers(0, 256, (count // numbers, size), dtype=np.uint8)
    for index in _SCALES[kind]:
        scales = draw.uniform(-1, 1, len(stored)) * magnitude / _MOST[kind]
        stored[:, index : index + 2] = scales.astype("<f2").view(np.uint8).reshape(-1, 2)
    # One group without a scale.
    stored[0, _SCALES[kind][0] : _SCALES[kind][0] + 2] = 0
    return stored.tobytes()


def dequantize_blocks(data: bytes, kind: int) -> list[float]:
    """The numbers of groups."""
    size = SIZES[kind][0]
    groups = (data[index : index + size] for index in range(0, len(data), size))
    return [number for group in groups for number in _READ[kind](group)]


def _half(group: bytes, index: int) -> float:
    (result,) = struct.unpack_from("<e", group, index)
    return float(result)


def _five(group: bytes, index: int) -> Iterator[int]:
    """Numbers of five bits: 32 upper bits, then 16 bytes with the lower ones."""
    (upper,) = struct.unpack_from("<I", group, index)
    for i in range(32):
        byte = group[index + 4 + i % 16]
        yield (byte & 15 if i < 16 else byte >> 4) | (upper >> i & 1) << 4


def _q5_0(group: bytes) -> Iterator[float]:
    for number in _five(group, 2):
        yield _half(group, 0) * (number - 16)


def _q5_1(group: bytes) -> Iterator[float]:
    for number in _five(group, 4):
        yield _half(group, 0) * number + _half(group, 2)


def _scale_and_least(stored: bytes, block: int) -> tuple[int, int]:
    if block < 4:
        return stored[block] & 63, stored[block + 4] & 63
    last = stored[block + 4]
    return last & 15 | stored[block - 4] >> 6 << 4, last >> 4 | stored[block] >> 6 << 4


def _k(group: bytes, low: int, fifth: int | None) -> Iterator[float]:
    for i in range(256):
        block, position = divmod(i, 32)
        byte = group[low + 32 * (block // 2) + position]
        number = byte >> 4 if block % 2 else byte & 15
        if fifth is not None:
            number |= (group[fifth + position] >> block & 1) << 4
        scale, least = _scale_and_least(group[4:16], block)
        yield _half(group, 0) * scale * number - _half(group, 2) * least


def _q6_k(group: bytes) -> Iterator[float]:
    for i in range(256):
        half, position = divmod(i, 128)
        quarter, lane = divmod(position, 32)
        byte = group[64 * half + lane + 32 * (quarter % 2)]
        low = byte >> 4 if quarter > 1 else byte & 15
        high = group[128 + 32 * half + lane] >> 2 * quarter & 3
        (scale,) = struct.unpack_from("<b", group, 192 + i // 16)
        yield _half(group, 208) * scale * ((low | high << 4) - 32)


_READ = {
    Q5_0: _q5_0,
    Q5_1: _q5_1,
    Q4_K: lambda group: _k(group, 16, None),
    Q5_K: lambda group: _k(group, 48, 16),
    Q6_K: _q6_k,
}
