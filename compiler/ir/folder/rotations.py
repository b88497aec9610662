"""How config.json has queries and keys rotated: the rate at which each pair of a head turns."""

from compiler.ir.decoders.design import Rotation, plain_steps
from compiler.ir.decoders.quantized import Array
from compiler.ir.decoders.rotations import stretch_llama3, stretch_yarn, yarn_magnitude
from compiler.ir.folder.config import Config, unsupported_error, unusable

SCALINGS = ("default", "linear", "llama3", "yarn")


def rotation_of(config: Config, size: int, base: float, kind: str = "") -> Rotation:
    """The rotation of heads of `size` numbers; base: where config.json has none; kind: of layers,
    where each kind has settings of its own. Raises LoadError.
    """
    settings = _settings(config, kind)
    name = settings.get("rope_type", settings.get("type", "default"))
    if name not in SCALINGS:
        raise unsupported_error(f"rotations of the type {str(name)[:40]!r}")
    if settings.number("partial_rotary_factor", config.number("partial_rotary_factor", 1.0)) != 1:
        raise unsupported_error("heads of which a part is rotated")
    base = settings.number("rope_theta", config.number(_BASES.get(kind, "rope_theta"), base))
    if base <= 1:
        raise unusable("config.json states no usable rope_theta")
    steps, factor = plain_steps(base, size), 1.0
    if name == "linear":
        steps = steps / _factor(settings)
    elif name == "llama3":
        steps = _llama3(settings, steps, _original(config, settings))
    elif name == "yarn":
        steps = _yarn(settings, steps, base, _original(config, settings))
        factor = _yarn_factor(settings)
    return Rotation(kind, steps, factor)


_BASES = {"sliding_attention": "rope_local_base_freq"}


def _settings(config: Config, kind: str) -> Config:
    """The settings of layers of a kind; rope_scaling is the form of older files, and means layers
    that see all.
    """
    parameters = config.table("rope_parameters")
    if kind and parameters.get(kind) is not None:
        return parameters.table(kind)
    if kind == "sliding_attention" or parameters.settings:
        return Config({} if kind else parameters.settings)
    return config.table("rope_scaling")


def _factor(settings: Config) -> float:
    """How many times longer than before a context becomes."""
    factor = settings.number("factor")
    if factor < 1:
        raise unusable("config.json states no usable factor of its rotations")
    return factor


def _original(config: Config, settings: Config) -> float:
    """The longest context before it was extended."""
    longest = config.count("max_position_embeddings")
    own = settings.number("original_max_position_embeddings", longest)
    return config.number("original_max_position_embeddings", own)


def _llama3(settings: Config, steps: Array, original: float) -> Array:
    factor = _factor(settings)
    low, high = settings.number("low_freq_factor"), settings.number("high_freq_factor")
    if high <= low:
        raise unsupported_error("rotations whose high_freq_factor is not above low_freq_factor")
    return stretch_llama3(steps, factor, low, high, original)


def _yarn(settings: Config, steps: Array, base: float, original: float) -> Array:
    turns = settings.number("beta_fast", 32), settings.number("beta_slow", 1)
    truncate = settings.flag("truncate", True)
    return stretch_yarn(steps, base, _factor(settings), original, turns, truncate)


def _yarn_factor(settings: Config) -> float:
    own = settings.maybe("attention_factor")
    if own is not None:
        return own
    factor = _factor(settings)
    over, under = settings.get("mscale"), settings.get("mscale_all_dim")
    if over and under:
        parts = settings.number("mscale"), settings.number("mscale_all_dim")
        return yarn_magnitude(factor, parts[0]) / yarn_magnitude(factor, parts[1])
    return yarn_magnitude(factor)
