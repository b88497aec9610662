"""How rotations are stretched for contexts that are longer than those of the training, as
transformers and llama.cpp compute it: steps are float64 [pairs], the angle by position.
"""

import math

import numpy as np

from compiler.ir.decoders.quantized import Array


def stretch_llama3(steps: Array, factor: float, low: float, high: float, original: float) -> Array:
    """Slow turns are stretched, fast ones stay, between `low` and `high` turns in the `original`
    context is a ramp.
    """
    turns = original * steps / (2 * math.pi)
    share = np.clip((turns - low) / (high - low), 0, 1)
    return np.asarray(steps * (share + (1 - share) / factor))


def stretch_yarn(
    steps: Array,
    base: float,
    factor: float,
    original: float,
    turns: tuple[float, float] = (32.0, 1.0),
    truncate: bool = True,
) -> Array:
    """YaRN (https://arxiv.org/abs/2309.00071): pairs that turn more often than the first of `turns`
    in the original context stay, those that turn less often than the second are stretched.
    """
    size = 2 * len(steps)
    low, high = (
        size * math.log(original / (each * 2 * math.pi)) / (2 * math.log(base)) for each in turns
    )
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    ramp = np.clip((np.arange(len(steps)) - low) / ((high - low) or 0.001), 0, 1)
    return np.asarray(steps * (1 - ramp + ramp / factor))


def yarn_magnitude(factor: float, part: float = 1.0) -> float:
    """The factor of sines and cosines that goes with YaRN."""
    return 0.1 * part * math.log(factor) + 1 if factor > 1 else 1.0
