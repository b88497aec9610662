"""How config.json has queries and keys rotated: the rate at which each pair of a head turns."""

import math

import numpy as np

from compiler.ir.decoders.design import Rotation, plain_steps
from compiler.ir.decoders.quantized import Array
from compiler.ir.folder.config import Config, unsupported, unusable

SCALINGS = ("default", "linear", "llama3", "yarn")


def rotation_of(config: Config, size: int, base: float, kind: str = "") -> Rotation:
    """Of heads of `size` numbers; base: where none is stated; kind: of layers, where each kind has
    settings of its own. Raises LoadError.
    """
    stated = _stated(config, kind)
    name = stated.get("rope_type", stated.get("type", "default"))
    if name not in SCALINGS:
        raise unsupported(f"rotations of the type {str(name)[:40]!r}")
    if stated.number("partial_rotary_factor", config.number("partial_rotary_factor", 1.0)) != 1:
        raise unsupported("heads of which a part is rotated")
    base = stated.number("rope_theta", config.number(_BASES.get(kind, "rope_theta"), base))
    if base <= 1:
        raise unusable("config.json states no usable rope_theta")
    steps, factor = plain_steps(base, size), 1.0
    if name == "linear":
        steps = steps / _factor(stated)
    elif name == "llama3":
        steps = _llama3(stated, steps, _original(config, stated))
    elif name == "yarn":
        steps = _yarn(stated, steps, base, _original(config, stated))
        factor = _yarn_factor(stated)
    return Rotation(kind, steps, factor)


_BASES = {"sliding_attention": "rope_local_base_freq"}


def _stated(config: Config, kind: str) -> Config:
    """The settings of layers of a kind; rope_scaling is the form of older files, and means layers
    that see all.
    """
    found = config.table("rope_parameters")
    if kind and found.get(kind) is not None:
        return found.table(kind)
    if kind == "sliding_attention" or found.stated:
        return Config({} if kind else found.stated)
    return config.table("rope_scaling")


def _factor(stated: Config) -> float:
    """How many times longer than before a context becomes."""
    found = stated.number("factor")
    if found < 1:
        raise unusable("config.json states no usable factor of its rotations")
    return found


def _original(config: Config, stated: Config) -> float:
    """The longest context before it was extended."""
    longest = config.count("max_position_embeddings")
    own = stated.number("original_max_position_embeddings", longest)
    return config.number("original_max_position_embeddings", own)


def _llama3(stated: Config, steps: Array, original: float) -> Array:
    """Slow turns are stretched, fast ones stay, between them is a ramp."""
    factor = _factor(stated)
    low, high = stated.number("low_freq_factor"), stated.number("high_freq_factor")
    if high <= low:
        raise unsupported("rotations whose high_freq_factor is not above low_freq_factor")
    turns = original * steps / (2 * math.pi)
    share = np.clip((turns - low) / (high - low), 0, 1)
    return np.asarray(steps * (share + (1 - share) / factor))


def _yarn(stated: Config, steps: Array, base: float, original: float) -> Array:
    factor, size = _factor(stated), 2 * len(steps)

    def pair_of(turns: float) -> float:
        return size * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = pair_of(stated.number("beta_fast", 32)), pair_of(stated.number("beta_slow", 1))
    if stated.flag("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    ramp = np.clip((np.arange(len(steps)) - low) / ((high - low) or 0.001), 0, 1)
    return np.asarray(steps * (1 - ramp + ramp / factor))


def _yarn_factor(stated: Config) -> float:
    own = stated.maybe("attention_factor")
    if own is not None:
        return own
    factor = _factor(stated)

    def scale(part: float) -> float:
        return 0.1 * part * math.log(factor) + 1 if factor > 1 else 1.0

    over, under = stated.get("mscale"), stated.get("mscale_all_dim")
    if over and under:
        return scale(stated.number("mscale")) / scale(stated.number("mscale_all_dim"))
    return scale(1)
