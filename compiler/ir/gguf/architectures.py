"""Decoders that a GGUF file may hold, by llama.cpp's names of their architectures."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from compiler.ir.decoders.design import (
    MOST_ANGLES,
    MOST_LAYERS,
    Activation,
    Design,
    Layer,
    Part,
    Rotation,
    plain_steps,
)
from compiler.ir.decoders.quantized import Array
from compiler.ir.decoders.rotations import stretch_yarn, yarn_magnitude
from compiler.ir.gguf.metadata import Metadata, unsupported_error

_BLOCK = "blk.{}."
_NAMES = {
    Part.TABLE: "token_embd",
    Part.HEAD: "output",
    Part.LAST_NORM: "output_norm",
    Part.SEEN_NORM: f"{_BLOCK}attn_norm",
    Part.QUERY: f"{_BLOCK}attn_q",
    Part.KEY: f"{_BLOCK}attn_k",
    Part.VALUE: f"{_BLOCK}attn_v",
    Part.MIXED: f"{_BLOCK}attn_output",
    Part.READ_NORM: f"{_BLOCK}ffn_norm",
    Part.GATE: f"{_BLOCK}ffn_gate",
    Part.UP: f"{_BLOCK}ffn_up",
    Part.DOWN: f"{_BLOCK}ffn_down",
}
_NORMALIZED_HEADS = {
    Part.QUERY_NORM: f"{_BLOCK}attn_q_norm",
    Part.KEY_NORM: f"{_BLOCK}attn_k_norm",
}
_NORMALIZED_TWICE = {
    Part.MIXED_NORM: f"{_BLOCK}post_attention_norm",
    Part.DOWN_NORM: f"{_BLOCK}post_ffw_norm",
}
_NORMALIZED_AFTER: Mapping[Part, str] = {
    **{part: name for part, name in _NAMES.items() if part not in (Part.SEEN_NORM, Part.READ_NORM)},
    **_NORMALIZED_HEADS,
    **_NORMALIZED_TWICE,
}
_JOINT = {
    **dict.fromkeys((Part.QUERY, Part.KEY, Part.VALUE), f"{_BLOCK}attn_qkv"),
    **dict.fromkeys((Part.GATE, Part.UP), f"{_BLOCK}ffn_up"),
}
_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "expert_count": (0,),
    "rope.scale_linear": (1.0,),
    "attention.causal": (True,),
    "attention.clamp_kqv": (0.0,),
    "attention.max_alibi_bias": (0.0,),
}
"""Settings of decoders that compute something else, with the values that change nothing."""
_SCALES: Mapping[str, tuple[object, ...]] = {
    "attention.scale": (0.0,),
    "embedding_scale": (0.0, 1.0),
    "residual_scale": (0.0, 1.0),
    "logit_scale": (0.0, 1.0),
}
"""Such settings of architectures without these scales; 0 stands for none."""
_LAYERS_27B = {"gemma2": 46, "gemma3": 62}
"""By this number llama.cpp knows the models whose scores have another scale."""


@dataclass(frozen=True)
class Architecture:
    """names: of tensors without their ending, by part; some stand for parts that are rows of one
    matrix. neighbours: whether llama.cpp's converter orders the rows of queries and keys so that
    neighbours rotate. scales: whether it has those of `_SCALES`. own: what else it has.
    """

    names: Mapping[Part, str]
    neighbours: bool = False
    scales: bool = False
    own: Callable[[Metadata, Design], Design] = lambda metadata, design: design


def _windowed(metadata: Metadata, design: Design, is_near: Callable[[int], bool]) -> Design:
    window = metadata.count("attention.sliding_window")
    layers = tuple(
        replace(layer, window=window if is_near(i) else None)
        for i, layer in enumerate(design.layers)
    )
    return replace(design, layers=layers)


def _one_window(metadata: Metadata, design: Design) -> Design:
    """The same for each layer, where the file states one."""
    if metadata.get("attention.sliding_window") in (None, 0):
        return design
    return _windowed(metadata, design, lambda _: True)


def _granite(metadata: Metadata, design: Design) -> Design:
    score, table, residual, logit = (
        metadata.number(name) if metadata.get(name) else None for name in _SCALES
    )
    return replace(
        design,
        score_scale=score,
        table_scale=table,
        residual_scale=residual,
        logit_scale=1 / logit if logit else None,
    )


def _olmo2(metadata: Metadata, design: Design) -> Design:
    if metadata.get("attention.sliding_window"):
        raise unsupported_error("decoders of the third generation of OLMo")
    return replace(design, joint_norms=True)


def _some_rotated(metadata: Metadata, design: Design) -> Design:
    """SmolLM3: each fourth layer leaves queries and keys as they are."""
    layers = tuple(
        layer if (i + 1) % 4 else replace(layer, rotation=None)
        for i, layer in enumerate(design.layers)
    )
    return replace(design, layers=layers)


def _gemma(metadata: Metadata, design: Design) -> Design:
    return replace(design, table_scale=design.width**0.5, activation=Activation.GELU_TANH)


def _scaled_scores(metadata: Metadata, design: Design) -> Design:
    is_27b = len(design.layers) == _LAYERS_27B[metadata.kind]
    size = design.width // design.heads if is_27b else design.size
    return replace(_gemma(metadata, design), score_scale=size**-0.5)


def _gemma2(metadata: Metadata, design: Design) -> Design:
    """Each second layer sees all."""
    design = replace(
        _scaled_scores(metadata, design),
        score_cap=metadata.number("attn_logit_softcapping", 50.0),
        logit_cap=metadata.number("final_logit_softcapping", 30.0),
    )
    return _windowed(metadata, design, lambda i: i % 2 == 0)


def _gemma3(metadata: Metadata, design: Design) -> Design:
    """Each sixth layer sees all; the others rotate by rates of their own."""
    design = _scaled_scores(metadata, design)
    if metadata.get("final_logit_softcapping"):
        design = replace(design, logit_cap=metadata.number("final_logit_softcapping"))
    if metadata.get("attention.sliding_window") in (None, 0):
        return design
    base = metadata.number("rope.freq_base_swa", 10000.0)
    near = Rotation("near", plain_steps(base, design.size))
    design = _windowed(metadata, design, lambda i: (i + 1) % 6 != 0)
    layers = tuple(
        replace(layer, rotation=near) if layer.window else layer for layer in design.layers
    )
    return replace(design, layers=layers)


ARCHITECTURES = {
    "llama": Architecture(_NAMES, neighbours=True, own=_one_window),
    "smollm3": Architecture(_NAMES, neighbours=True, own=_some_rotated),
    "qwen2": Architecture(_NAMES),
    "qwen3": Architecture(_NAMES | _NORMALIZED_HEADS),
    "granite": Architecture(_NAMES, neighbours=True, scales=True, own=_granite),
    "olmo2": Architecture(_NORMALIZED_AFTER, own=_olmo2),
    "phi3": Architecture(_NAMES | _JOINT, own=_one_window),
    "gemma": Architecture(_NAMES, own=_gemma),
    "gemma2": Architecture(_NAMES | _NORMALIZED_TWICE, own=_gemma2),
    "gemma3": Architecture(_NAMES | _NORMALIZED_TWICE | _NORMALIZED_HEADS, own=_gemma3),
}


def architecture_of(metadata: Metadata) -> Architecture:
    """Raises LoadError for one that is not known."""
    if (architecture := ARCHITECTURES.get(metadata.kind)) is None:
        raise unsupported_error(
            f"GGUF files of the architecture {metadata.kind!r}",
            f"supported are {', '.join(sorted(ARCHITECTURES))}; ",
        )
    return architecture


def design_of(
    metadata: Metadata, architecture: Architecture, vocabulary: int, rates: Array | None
) -> Design:
    """The decoder; vocabulary: rows of the table; rates: by which the file divides the steps of
    rotations, float32 [pairs]. Raises LoadError where the settings contradict themselves.
    """
    neutral = _NEUTRAL if architecture.scales else {**_NEUTRAL, **_SCALES}
    for name, values in neutral.items():
        if metadata.get(name) not in (None, *values):
            raise unsupported_error(f"decoders with {name}")
    count = metadata.count("block_count", most=MOST_LAYERS)
    width, heads, longest = map(
        metadata.count, ("embedding_length", "attention.head_count", "context_length")
    )
    groups = metadata.count("attention.head_count_kv", heads)
    size = metadata.count("attention.key_length", width // heads or None)
    if heads % groups or size % 8 or metadata.count("attention.value_length", size) != size:
        raise unsupported_error(f"{heads} heads of {size} numbers in {groups} groups")
    if longest * size > MOST_ANGLES:
        raise unsupported_error(f"contexts of {longest} tokens")
    if metadata.count("rope.dimension_count", size) != size:
        raise unsupported_error("heads of which a part is rotated")
    design = Design(
        layers=(Layer(_rotation(metadata, size, rates)),) * count,
        vocabulary=vocabulary,
        width=width,
        heads=heads,
        groups=groups,
        size=size,
        hidden=metadata.count("feed_forward_length"),
        longest=longest,
        epsilon=metadata.number("attention.layer_norm_rms_epsilon", 1e-5),
        neighbours=architecture.neighbours,
    )
    return architecture.own(metadata, design)


def _rotation(metadata: Metadata, size: int, rates: Array | None) -> Rotation:
    base = metadata.number("rope.freq_base", 10000.0)
    if base <= 1:
        raise metadata.unusable("rope.freq_base")
    steps, factor = plain_steps(base, size), 1.0
    if rates is not None:
        if rates.shape != steps.shape or not (np.isfinite(rates) & (rates > 0)).all():
            raise metadata.unusable("rope_freqs.weight")
        steps = steps / rates
    kind = metadata.get("rope.scaling.type", "none")
    if kind == "none":
        return Rotation("", steps)
    stretched = metadata.number("rope.scaling.factor", 1.0)
    if stretched < 1:
        raise metadata.unusable("rope.scaling.factor")
    if kind == "linear":
        steps = steps / stretched
    elif kind == "yarn":
        original = metadata.number("rope.scaling.original_context_length")
        turns = (
            metadata.number("rope.scaling.yarn_beta_fast", 32.0),
            metadata.number("rope.scaling.yarn_beta_slow", 1.0),
        )
        _refuse_other_yarn(metadata)
        steps = stretch_yarn(steps, base, stretched, original, turns)
        factor = yarn_magnitude(stretched) * metadata.number("rope.scaling.attn_factor", 1.0)
    else:
        raise unsupported_error(f"rotations of the type {str(kind)[:40]!r}")
    return Rotation("", steps, factor)


def _refuse_other_yarn(metadata: Metadata) -> None:
    for name, neutral in (("yarn_ext_factor", 1.0), ("yarn_log_multiplier", 0.0)):
        if metadata.get(f"rope.scaling.{name}", neutral) != neutral:
            raise unsupported_error(f"decoders with rope.scaling.{name}")
