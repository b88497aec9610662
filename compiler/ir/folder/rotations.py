"""How config.json has queries and keys rotated: the rate at which each pair of a head turns."""

import math

import numpy as np

from compiler.ir.decoders.design import Rotation, plain_steps
from compiler.ir.decoders.quantized import Array
from compiler.ir.folder.config import Config, unsupported

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
    steps = plain_steps(base, size)
    if name == "linear":
        return Rotation(kind, steps / stated.number("factor"))
    if name == "llama3":
        return Rotation(kind, _llama3(stated, steps, _original(config, stated)))
    if name == "yarn":
        original = _original(config, stated)
        return Rotation(kind, _yarn(stated, steps, base, original), _yarn_factor(stated))
    return Rotation(kind, steps)


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


def _original(config: Config, stated: Config) -> float:
    """The longest context before it was extended."""
    longest = config.count("max_position_embeddings")
    own = stated.number("original_max_position_embeddings", longest)
    return config.number("original_max_position_embeddings", own)


def _llama3(stated: Config, steps: Array, original: float) -> Array:
    """Slow turns are stretched, fast ones stay, between them is a ramp."""
    factor = stated.number("factor")
    low, high = stated.number("low_freq_factor"), stated.number("high_freq_factor")
    if high <= low:
        raise unsupported("rotations whose high_freq_factor is not above low_freq_factor")
    turns = original * steps / (2 * math.pi)
    share = np.clip((turns - low) / (high - low), 0, 1)
    return np.asarray(steps * (share + (1 - share) / factor))


def _yarn(stated: Config, steps: Array, base: float, original: float) -> Array:
    factor, size = stated.number("factor"), 2 * len(steps)

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
    factor = stated.number("factor")

    def scale(part: float) -> float:
        return 0.1 * part * math.log(factor) + 1 if factor > 1 else 1.0

    over, under = stated.get("mscale"), stated.get("mscale_all_dim")
    if over and under:
        return scale(stated.number("mscale")) / scale(stated.number("mscale_all_dim"))
    return scale(1)
