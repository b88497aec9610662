"""Reads the folder of an adapter that PEFT's save_pretrained wrote."""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from relaxd.contract.adapter_files.adapter import (
    Adapter,
    Array,
    Key,
    LowRank,
    check_finite,
    malformed_error,
    unsupported_error,
)
from relaxd.contract.model_folder import ADAPTER, ADAPTER_WEIGHTS
from relaxd.contract.weight_files.errors import WeightFileError
from relaxd.contract.weight_files.safetensors import Stored, as_float32, read_safetensors

_MOST_CONFIG = 1 << 20
_MATRIX = re.compile(
    r"(?:\w+\.)*layers\.(\d{1,6})\.(?:self_attn|mlp)\.(\w+)\.lora_(A|B)(?:\.default)?\.weight"
)
_MAGNITUDE = re.compile(
    r"(?:\w+\.)*layers\.(\d{1,6})\.(?:self_attn|mlp)\.(\w+)\.lora_magnitude_vector"
    r"(?:\.default)?(?:\.weight)?"
)
_NO_BYTES = np.zeros(0, np.uint8)
_MERGE = "put the adapter's two files into the model's folder and compile that, which merges them"
_NAME = re.compile(r"\^?([A-Za-z0-9_.]+)\$?")
_KEPT_BASE = (True, False, None, "gaussian", "eva", "orthogonal")
"""Ways to begin a training that leave the base's weights as they were."""
_NOTHING: Mapping[str, tuple[Any, ...]] = {
    "bias": ("none", None),
    "lora_bias": (False, None),
    "modules_to_save": (None, []),
    "trainable_token_indices": (None, [], {}),
    "target_parameters": (None, []),
    "layer_replication": (None, []),
    "megatron_config": (None,),
    "alora_invocation_tokens": (None, []),
    "use_qalora": (False, None),
    "use_bdlora": (False, None),
}
"""Settings that change what low-rank products do not, with the values that change nothing."""


def read_peft(folder: Path) -> Adapter:
    """The adapter in a folder; raises AdapterError."""
    try:
        with (folder / ADAPTER).open("rb") as file:
            config = file.read(_MOST_CONFIG + 1)
        path = folder / ADAPTER_WEIGHTS
        # An empty file cannot be mapped.
        weights = np.memmap(path, np.uint8, mode="r") if path.stat().st_size else _NO_BYTES
    except OSError as error:
        name = Path(error.filename or ADAPTER).name
        raise malformed_error(f"{name} cannot be read: {error.strerror or error}") from error
    return parse_peft(config, weights)


def parse_peft(config: bytes, weights: Array, *, dora: bool = False) -> Adapter:
    """The adapter in the bytes of its two files; raises AdapterError. dora: whether DoRA's
    magnitudes are read, where there are some.
    """
    settings = _config(config, dora)
    halves: dict[Key, dict[str, tuple[str, Stored]]] = {}
    magnitudes: dict[Key, Array] = {}
    for name, stored in _tensors(weights).items():
        if dora and (match := _MAGNITUDE.fullmatch(name)):
            key = int(match.group(1)), match.group(2)
            magnitudes[key] = _floats(name, stored).reshape(-1)
            check_finite(key, magnitudes[key])
            continue
        match = _MATRIX.fullmatch(name)
        if match is None:
            raise _unknown(name)
        layer, module, half = match.groups()
        halves.setdefault((int(layer), module), {})[half] = name, stored
    if not halves:
        raise malformed_error("the adapter has no matrices")
    if magnitudes.keys() != (halves.keys() if settings.get("use_dora") else set()):
        raise malformed_error("the adapter has no magnitude for each matmul, or one too many")
    changes = {key: _low_rank(key, pair, settings) for key, pair in halves.items()}
    return Adapter(changes, magnitudes=magnitudes)


def _config(content: bytes, dora: bool) -> Mapping[str, Any]:
    try:
        if len(content) > _MOST_CONFIG:
            raise ValueError("it is too long")
        config = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise malformed_error(f"{ADAPTER} is not valid JSON: {str(error)[:100]}") from error
    if not isinstance(config, dict):
        raise malformed_error(f"{ADAPTER} is no JSON object")
    _check_config(config, dora)
    return config


def _check_config(config: Mapping[str, Any], dora: bool) -> None:
    """Raises AdapterError for adapters that are more than low-rank products."""
    if config.get("peft_type") != "LORA":
        raise unsupported_error(f"adapters of the type {str(config.get('peft_type'))[:40]!r}")
    if config.get("use_dora") not in (False, None, *([True] if dora else [])):
        raise unsupported_error("DoRA adapters, whose scales depend on the base's weights,", _MERGE)
    start = config.get("init_lora_weights", True)
    if not any(start is one or (isinstance(one, str) and start == one) for one in _KEPT_BASE):
        raise unsupported_error(
            f"adapters that began with init_lora_weights={str(start)[:40]!r}, which changes the "
            "base,",
            "save it with path_initial_model_for_weight_conversion, which gives plain LoRA",
        )
    for name, nothing in _NOTHING.items():
        if config.get(name) not in nothing:
            raise unsupported_error(f"adapters with {name}={str(config[name])[:60]}")


def _tensors(weights: Array) -> Mapping[str, Stored]:
    if not len(weights):
        raise malformed_error(f"{ADAPTER_WEIGHTS} is empty")
    try:
        return read_safetensors(ADAPTER_WEIGHTS, weights)
    except WeightFileError as error:
        raise malformed_error(error.message) from error


def _low_rank(
    key: Key, pair: Mapping[str, tuple[str, Stored]], config: Mapping[str, Any]
) -> LowRank:
    layer, module = key
    if pair.keys() != {"A", "B"}:
        raise malformed_error(f"the adapter has one half of {module} in layer {layer} alone")
    first, second = (_matrix(*pair[half]) for half in "AB")
    rank = first.shape[0]
    if not rank or second.shape[1] != rank:
        raise malformed_error(f"the halves of {module} in layer {layer} have different ranks")
    name = pair["A"][0].partition(".lora_")[0]
    if (declared := _number(config, "r", "rank_pattern", name)) != rank:
        raise malformed_error(f"{name} has the rank {rank}, and {ADAPTER} says {declared:g}")
    alpha = _number(config, "lora_alpha", "alpha_pattern", name)
    scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    up = second.T * np.float32(scale)
    check_finite(key, first, up)
    return LowRank(np.ascontiguousarray(first.T), np.ascontiguousarray(up))


def _matrix(name: str, stored: Stored) -> Array:
    if len(stored.shape) != 2:
        raise malformed_error(f"{name} is no matrix")
    return _floats(name, stored)


def _floats(name: str, stored: Stored) -> Array:
    try:
        return as_float32(name, stored)
    except WeightFileError as error:
        raise malformed_error(error.message) from error


def _number(config: Mapping[str, Any], setting: str, pattern: str, name: str) -> float:
    """The setting for a module: of the first pattern that is the end of its name, else of all."""
    patterns = config.get(pattern) or {}
    if not isinstance(patterns, dict):
        raise malformed_error(f"{ADAPTER} states no usable {pattern}")
    value: Any = config.get(setting)
    for text, own in patterns.items():
        plain = _NAME.fullmatch(text)
        if plain is None:
            raise unsupported_error(f"adapters whose {pattern} has {text[:60]!r}, no name,")
        if f".{name}".endswith(f".{plain.group(1)}"):
            value = own
            break
    if type(value) not in (int, float) or not 0 < value < 1e9:
        raise malformed_error(f"{ADAPTER} states no usable {setting}")
    return float(value)


def _unknown(name: str) -> Exception:
    """The error of a tensor that is no half of a matmul's product."""
    short = name[:100]
    if "lora_magnitude_vector" in name:
        return unsupported_error(f"DoRA adapters, as {short!r} is of one,", _MERGE)
    if "lora_embedding" in name:
        return unsupported_error(f"adapters of embeddings, such as {short!r},")
    if name.endswith(".bias"):
        return unsupported_error(f"adapters with biases, such as {short!r},")
    return unsupported_error(f"adapters that change {short!r}, no matmul of a layer,")
