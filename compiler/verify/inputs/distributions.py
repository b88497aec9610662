"""Distributions that inputs are sampled from: noise, and what models are made for, since on noise
many a model has nothing to say.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from relaxd.contract.dims.tensors import TensorSpec

Array = np.ndarray[Any, Any]


class Distribution(StrEnum):
    """noise: normal numbers. pages: dark strokes in lines on a light page, between -1 and 1;
    bright_pages: the same between 0 and 255. smooth: few low frequencies. tones: tones that rise or
    fall, as audio. quiet, loud: a tenth of noise, and ten times as much. text: few frequent and
    many rare tokens between two special ones.
    """

    NOISE = "noise"
    PAGES = "pages"
    SMOOTH = "smooth"
    TONES = "tones"
    TEXT = "text"
    QUIET = "quiet"
    BRIGHT_PAGES = "bright_pages"
    LOUD = "loud"


_AUDIO = re.compile(r"audio|wave|signal|speech|pcm|sound|voice")
_COLOURS = (1, 3)
_LONG = 256
_GLYPHS = 40
_SPACES = 0.15
_LINE = 64
_RATE = 16000
_VOCABULARY = 256
"""From so many values on, integers are taken for tokens."""


@dataclass(frozen=True)
class Image:
    """Which axes of an input are an image's: rows and columns behind `channels`, or before it."""

    channels: int
    rows: int

    @classmethod
    def of(cls, spec: TensorSpec) -> "Image | None":
        """The axes of an image with one or three channels; None for any other input."""
        rank = len(spec.shape)
        if rank not in (3, 4) or not ("float" in spec.dtype or spec.dtype == "uint8"):
            return None
        first = rank - 3
        if spec.shape[first].size in _COLOURS:
            return cls(first, first + 1)
        return cls(rank - 1, first) if spec.shape[-1].size in _COLOURS else None


def is_audio(spec: TensorSpec) -> bool:
    """Take the input for samples of sound along its last axis, by its name or its shape."""
    if "float" not in spec.dtype or not 1 <= len(spec.shape) <= 3:
        return False
    if _AUDIO.search(spec.name.lower()):
        return True
    last, rest = spec.shape[-1], [axis.size for axis in spec.shape[1:-1]]
    return len(spec.shape) > 1 and all(size == 1 for size in rest) and (last.size or 0) >= _LONG


def candidates(
    inputs: Sequence[TensorSpec], highest: Iterable[int], *, scaled: bool = False
) -> list[Distribution]:
    """The distributions that fit some input, noise first; highest: the greatest legal values of
    inputs that have one; scaled: with noise of other scales.
    """
    result = [Distribution.NOISE]
    images = [spec for spec in inputs if Image.of(spec)]
    if images:
        result += [Distribution.PAGES, Distribution.SMOOTH]
        if any("float" in spec.dtype for spec in images):
            result.append(Distribution.BRIGHT_PAGES)
    if any(is_audio(spec) for spec in inputs):
        result += [Distribution.TONES, Distribution.QUIET]
    if scaled and any("float" in spec.dtype for spec in inputs):
        result += [Distribution.QUIET, Distribution.LOUD]
    if any(value >= _VOCABULARY for value in highest):
        result.append(Distribution.TEXT)
    return list(dict.fromkeys(result))


def sample(
    spec: TensorSpec, shape: tuple[int, ...], wanted: Distribution, random: np.random.Generator
) -> Array | None:
    """Numbers for the input, None where the distribution is noise to it."""
    image = Image.of(spec)
    if 0 in shape:
        return None
    match wanted:
        case Distribution.PAGES | Distribution.BRIGHT_PAGES if image is not None:
            pages = _arrange(image, shape, lambda size: _draw_page(size, random))
            byte = spec.dtype == "uint8" or wanted is Distribution.BRIGHT_PAGES
            return ((pages + 1) * 127.5).clip(0, 255) if byte else pages
        case Distribution.SMOOTH if image is not None:
            waves = _arrange(image, shape, lambda size: _draw_waves(size, random))
            return (waves * 50 + 128).clip(0, 255) if spec.dtype == "uint8" else waves
        case Distribution.TONES if is_audio(spec):
            return _draw_tones(shape, random)
        case Distribution.QUIET | Distribution.LOUD if "float" in spec.dtype:
            scale = 0.1 if wanted is Distribution.QUIET else 10.0
            return np.asarray(scale * random.standard_normal(shape))
    return None


def sample_tokens(
    low: int, high: int, shape: tuple[int, ...], random: np.random.Generator
) -> Array:
    """Token ids, the lower the more frequent (Zipf), between the special tokens 1 and 2."""
    ranks = np.floor(np.exp(random.random(shape) * np.log(high - low + 1)))
    ids = np.asarray(low + ranks.astype(np.int64) - 1)
    if shape and shape[-1] > 2:
        ids[..., 0], ids[..., -1] = low + 1, low + 2
    return ids


def takes_tokens(low: int, high: int) -> bool:
    """Take integers of this range for tokens, as there are many."""
    return high - low + 1 >= _VOCABULARY


def _arrange(
    image: Image, shape: tuple[int, ...], draw: Callable[[tuple[int, int]], Array]
) -> Array:
    """Pictures [rows, columns], one for each of the batch, with the channels where the input has
    them: alike but for a little.
    """
    size = shape[image.rows], shape[image.rows + 1]
    count = shape[0] if len(shape) == 4 else 1
    pictures = np.stack([draw(size) for _ in range(count)])
    tints = 1 - 0.1 * np.arange(shape[image.channels])
    channels = pictures[..., None] * tints
    if image.channels < image.rows:
        channels = np.moveaxis(channels, -1, 1)
    return np.asarray(channels.reshape(shape))


def _draw_waves(size: tuple[int, int], random: np.random.Generator) -> Array:
    down, along = (np.linspace(0, 1, extent)[:, None] for extent in size)
    total = np.zeros(size)
    for scale in (1, 0.7, 0.5, 0.3):
        rows, columns, phase = random.uniform(-4, 4), random.uniform(-4, 4), random.uniform(0, 6)
        total += scale * np.cos(2 * np.pi * (rows * down + columns * along.T) + phase)
    return total


def _draw_page(size: tuple[int, int], random: np.random.Generator) -> Array:
    """Lines of glyphs, in their upper and left parts of the page more often than elsewhere."""
    # Pictures that are this low are single lines of text.
    single = size[0] <= _LINE
    height = max(size[0] * 5 // 8, 3) if single else int(random.integers(14, 30))
    width = max(height * 3 // 5, 2)
    glyphs = _draw_glyphs(height, width, random)
    line, letter = size[0] if single else height * 3 // 2, width + max(width // 5, 1)
    rows, columns = 1 if single else size[0] // line + 1, size[1] // letter + 1
    chosen = random.integers(1, _GLYPHS, size=(rows, columns))
    chosen[random.random(chosen.shape) < _SPACES] = 0
    ends = random.integers(columns // 3, columns, size=rows, endpoint=True)
    chosen[np.arange(columns) > ends[:, None]] = 0
    cells = np.zeros((rows, columns, max(line, height), letter))
    top = (cells.shape[2] - height) // 2
    cells[:, :, top : top + height, :width] = glyphs[chosen]
    ink = cells.transpose(0, 2, 1, 3).reshape(rows * cells.shape[2], columns * letter)
    page = 0.9 - 1.7 * ink[: size[0], : size[1]]
    return np.asarray(page + 0.02 * random.standard_normal(size))


def _draw_glyphs(height: int, width: int, random: np.random.Generator) -> Array:
    """Glyphs [count, height, width] of strokes between points of a grid of 3 x 4; the first is
    blank.
    """
    y, x = np.mgrid[:height, :width].astype(np.float64)
    thick = max(height / 9, 0.7)
    glyphs = np.zeros((_GLYPHS, height, width))
    for number in range(1, _GLYPHS):
        for _ in range(int(random.integers(2, 5))):
            (y0, y1), (x0, x1) = random.integers(0, 4, 2), random.integers(0, 3, 2)
            start = np.array([y0 * (height - 1) / 3, x0 * (width - 1) / 2])
            along = np.array([y1 * (height - 1) / 3, x1 * (width - 1) / 2]) - start
            length = max(float(along @ along), 1e-9)
            share = ((y - start[0]) * along[0] + (x - start[1]) * along[1]) / length
            share = share.clip(0, 1)
            far = np.hypot(y - start[0] - share * along[0], x - start[1] - share * along[1])
            glyphs[number] = np.maximum(glyphs[number], (thick - far).clip(0, 1))
    return glyphs


def _draw_tones(shape: tuple[int, ...], random: np.random.Generator) -> Array:
    """Three tones that rise or fall and swell, a little noise behind them."""
    time = np.arange(shape[-1]) / _RATE
    rows = int(np.prod(shape[:-1]))
    total = 0.003 * random.standard_normal((rows, shape[-1]))
    for loud in (0.3, 0.2, 0.1):
        start = np.exp(random.uniform(np.log(90), np.log(3000), (rows, 1)))
        rise = random.uniform(-0.5, 0.5, (rows, 1)) * start
        swell = 1 + np.sin(2 * np.pi * random.uniform(2, 8, (rows, 1)) * time)
        total += loud * swell * np.sin(2 * np.pi * (start * time + rise * time * time / 2))
    return total.reshape(shape)
