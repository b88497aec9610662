"""Decoders that a folder may hold, by the names of their classes in transformers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from compiler.ir.decoders.design import (
    MOST_ANGLES,
    MOST_LAYERS,
    Activation,
    Design,
    Layer,
    Part,
    Rotation,
)
from compiler.ir.folder.config import Config, unsupported_error, unusable
from compiler.ir.folder.rotations import rotation_of

_FULL, _SLIDING = "full_attention", "sliding_attention"
_ACTIVATIONS = {
    "silu": Activation.SILU,
    "swish": Activation.SILU,
    "gelu_pytorch_tanh": Activation.GELU_TANH,
}
_LAYER = "model.layers.{}."
_NAMES = {
    Part.TABLE: "model.embed_tokens",
    Part.HEAD: "lm_head",
    Part.LAST_NORM: "model.norm",
    Part.SEEN_NORM: f"{_LAYER}input_layernorm",
    Part.QUERY: f"{_LAYER}self_attn.q_proj",
    Part.KEY: f"{_LAYER}self_attn.k_proj",
    Part.VALUE: f"{_LAYER}self_attn.v_proj",
    Part.MIXED: f"{_LAYER}self_attn.o_proj",
    Part.READ_NORM: f"{_LAYER}post_attention_layernorm",
    Part.GATE: f"{_LAYER}mlp.gate_proj",
    Part.UP: f"{_LAYER}mlp.up_proj",
    Part.DOWN: f"{_LAYER}mlp.down_proj",
}
_NORMALIZED_HEADS = {
    Part.QUERY_NORM: f"{_LAYER}self_attn.q_norm",
    Part.KEY_NORM: f"{_LAYER}self_attn.k_norm",
}
_NORMALIZED_TWICE = {
    Part.MIXED_NORM: f"{_LAYER}post_attention_layernorm",
    Part.READ_NORM: f"{_LAYER}pre_feedforward_layernorm",
    Part.DOWN_NORM: f"{_LAYER}post_feedforward_layernorm",
}
_NORMALIZED_AFTER: Mapping[Part, str] = {
    **{part: name for part, name in _NAMES.items() if part not in (Part.SEEN_NORM, Part.READ_NORM)},
    **_NORMALIZED_HEADS,
    Part.MIXED_NORM: f"{_LAYER}post_attention_layernorm",
    Part.DOWN_NORM: f"{_LAYER}post_feedforward_layernorm",
}
_JOINT = {
    **dict.fromkeys((Part.QUERY, Part.KEY, Part.VALUE), f"{_LAYER}self_attn.qkv_proj"),
    **dict.fromkeys((Part.GATE, Part.UP), f"{_LAYER}mlp.gate_up_proj"),
}
Windows: TypeAlias = Callable[[Config, int], list[int | None]]


@dataclass(frozen=True)
class Architecture:
    """names: of modules, by part; some stand for parts that are rows of one matrix.

    tied: whether table and head are one where the file does not say; plus_one: norms are stored
    less 1; base: of rotations.
    """

    names: Mapping[Part, str]
    windows: Windows
    tied: bool = False
    plus_one: bool = False
    base: float = 10000.0
    own: Callable[[Config, Design], Design] = lambda config, design: design


def _no_windows(config: Config, count: int) -> list[int | None]:
    return [None] * count


def _one_window(default: int | None) -> Windows:
    """The same for each layer, where `sliding_window` is no null."""

    def windows(config: Config, count: int) -> list[int | None]:
        declared = config.settings.get("sliding_window", default)
        return [None if declared is None else config.count("sliding_window", default)] * count

    return windows


def _asked_windows(config: Config, count: int) -> list[int | None]:
    """Those of the layers from max_window_layers on, where use_sliding_window is set."""
    if not config.flag("use_sliding_window") or config.get("sliding_window") is None:
        return [None] * count
    window, first = config.count("sliding_window", 4096), config.get("max_window_layers", 28)
    if type(first) is not int:
        raise unusable("config.json states no usable max_window_layers")
    by_layer = [_SLIDING if i >= first else _FULL for i in range(count)]
    return _of_kinds(_kinds(config, by_layer), window)


def _every(period: int) -> Windows:
    """All layers but each last of a period."""

    def windows(config: Config, count: int) -> list[int | None]:
        every = config.count("sliding_window_pattern", period)
        by_layer = [_SLIDING if (i + 1) % every else _FULL for i in range(count)]
        return _of_kinds(_kinds(config, by_layer), config.count("sliding_window", 4096))

    return windows


def _kinds(config: Config, default: list[str]) -> list[str]:
    return config.each("layer_types", len(default)) or default


def _of_kinds(kinds: list[str], window: int) -> list[int | None]:
    for kind in kinds:
        if kind not in (_FULL, _SLIDING):
            raise unsupported_error(f"layers of the type {str(kind)[:40]!r}")
    return [window if kind == _SLIDING else None for kind in kinds]


def _rotated(config: Config, count: int) -> list[bool]:
    """SmolLM3: each fourth layer leaves queries and keys as they are."""
    period = config.count("no_rope_layer_interval", 4)
    declared = config.each("no_rope_layers", count)
    return [bool(one) for one in declared or [(i + 1) % period for i in range(count)]]


def _unrotated_windows(config: Config, count: int) -> list[int | None]:
    """Those of the layers that are not rotated, where use_sliding_window is set."""
    if not config.flag("use_sliding_window") or config.get("sliding_window") is None:
        return [None] * count
    by_layer = [_FULL if turns else _SLIDING for turns in _rotated(config, count)]
    return _of_kinds(_kinds(config, by_layer), config.count("sliding_window"))


def _some_rotated(config: Config, design: Design) -> Design:
    rotated = _rotated(config, len(design.layers))
    layers = tuple(
        layer if turns else replace(layer, rotation=None)
        for layer, turns in zip(design.layers, rotated, strict=True)
    )
    return replace(design, layers=layers)


def _gemma(config: Config, design: Design) -> Design:
    return replace(design, table_scale=design.width**0.5)


def _gemma2(config: Config, design: Design) -> Design:
    if config.get("use_bidirectional_attention"):
        raise unsupported_error("decoders whose tokens see what follows them")
    return replace(
        _gemma(config, design),
        score_scale=config.number("query_pre_attn_scalar", 256) ** -0.5,
        score_cap=config.maybe("attn_logit_softcapping"),
        logit_cap=config.maybe("final_logit_softcapping"),
    )


def _gemma3(config: Config, design: Design) -> Design:
    """Layers that see all rotate by rates of their own."""
    full = rotation_of(config, design.size, 1e6, _FULL)
    near = rotation_of(config, design.size, 1e4, _SLIDING)
    layers = tuple(
        replace(layer, rotation=near if layer.window else full) for layer in design.layers
    )
    return replace(_gemma2(config, design), layers=layers)


def _granite(config: Config, design: Design) -> Design:
    return replace(
        design,
        table_scale=config.number("embedding_multiplier", 1.0),
        score_scale=config.number("attention_multiplier", 1.0),
        residual_scale=config.number("residual_multiplier", 1.0),
        logit_scale=1 / config.number("logits_scaling", 1.0),
    )


def _olmo2(config: Config, design: Design) -> Design:
    return replace(design, joint_norms=True)


ARCHITECTURES = {
    "LlamaForCausalLM": Architecture(_NAMES, _no_windows),
    "MistralForCausalLM": Architecture(_NAMES, _one_window(4096)),
    "Qwen2ForCausalLM": Architecture(_NAMES, _asked_windows),
    "Qwen3ForCausalLM": Architecture(_NAMES | _NORMALIZED_HEADS, _asked_windows),
    "SmolLM3ForCausalLM": Architecture(
        _NAMES, _unrotated_windows, tied=True, base=2e6, own=_some_rotated
    ),
    "GraniteForCausalLM": Architecture(_NAMES, _no_windows, own=_granite),
    "Olmo2ForCausalLM": Architecture(_NORMALIZED_AFTER, _no_windows, own=_olmo2),
    "Phi3ForCausalLM": Architecture(_NAMES | _JOINT, _one_window(None)),
    "GemmaForCausalLM": Architecture(_NAMES, _no_windows, tied=True, plus_one=True, own=_gemma),
    "Gemma2ForCausalLM": Architecture(
        _NAMES | _NORMALIZED_TWICE, _every(2), tied=True, plus_one=True, own=_gemma2
    ),
    "Gemma3ForCausalLM": Architecture(
        _NAMES | _NORMALIZED_HEADS | _NORMALIZED_TWICE,
        _every(6),
        tied=True,
        plus_one=True,
        own=_gemma3,
    ),
}


def design_of(config: Config, architecture: Architecture) -> Design:
    """The decoder; raises LoadError where the settings contradict themselves."""
    count = config.count("num_hidden_layers", most=MOST_LAYERS)
    width, heads = config.count("hidden_size"), config.count("num_attention_heads")
    groups, longest = (
        config.count("num_key_value_heads", heads),
        config.count("max_position_embeddings"),
    )
    size = config.count("head_dim", width // heads or None)
    if heads % groups or size % 8:
        raise unsupported_error(f"{heads} heads of {size} numbers in {groups} groups")
    if longest * size > MOST_ANGLES:
        raise unsupported_error(
            f"contexts of {longest} tokens",
            f"state at most {MOST_ANGLES // size} in max_position_embeddings of config.json",
        )
    windows = architecture.windows(config, count)
    rotation = _shared_rotation(config, architecture, size)
    design = Design(
        layers=tuple(Layer(rotation, window) for window in windows),
        vocabulary=config.count("vocab_size"),
        width=width,
        heads=heads,
        groups=groups,
        size=size,
        hidden=config.count("intermediate_size"),
        longest=longest,
        epsilon=config.number("rms_norm_eps", 1e-6),
        activation=_activation(config),
    )
    return architecture.own(config, design)


def _shared_rotation(config: Config, architecture: Architecture, size: int) -> Rotation | None:
    if architecture.own is _gemma3:
        return None
    return rotation_of(config, size, architecture.base)


def _activation(config: Config) -> Activation:
    name = config.get("hidden_activation", config.get("hidden_act", "silu"))
    if not isinstance(name, str) or name not in _ACTIVATIONS:
        raise unsupported_error(f"decoders with the activation {str(name)[:40]!r}")
    return _ACTIVATIONS[name]
