"""Reads a GGUF file of an adapter, as llama.cpp's convert_lora_to_gguf.py writes it."""

import math
import re
from pathlib import Path

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
from relaxd.contract.weight_files.errors import WeightFileError
from relaxd.contract.weight_files.gguf import Gguf, Stored, read_gguf

NEIGHBOURS = frozenset({"llama", "smollm3", "granite"})
"""The architectures of which llama.cpp's converter puts pairs that rotate beside each other."""
_MODULES = {
    "attn_q": "q_proj",
    "attn_k": "k_proj",
    "attn_v": "v_proj",
    "attn_qkv": "qkv_proj",
    "attn_output": "o_proj",
    "ffn_gate": "gate_proj",
    "ffn_up": "up_proj",
    "ffn_down": "down_proj",
}
_MATRIX = re.compile(r"blk\.(\d{1,6})\.(\w+)\.weight\.lora_(a|b)")
_F32, _F16, _BF16, _Q8_0 = 0, 1, 30, 8
_BLOCK = 32


def read_adapter_gguf(path: Path) -> Adapter:
    """The adapter in a file; raises AdapterError."""
    try:
        file = read_gguf(path)
    except WeightFileError as error:
        raise malformed_error(error.message) from error
    except OSError as error:
        raise malformed_error(f"the file cannot be read: {error.strerror or error}") from error
    alpha = _alpha(file)
    halves: dict[Key, dict[str, tuple[str, Stored]]] = {}
    for name, stored in file.tensors.items():
        match = _MATRIX.fullmatch(name)
        if match is None or match.group(2) not in _MODULES:
            raise unsupported_error(f"adapters that change {name[:100]!r}")
        layer, module, half = match.groups()
        halves.setdefault((int(layer), _MODULES[module]), {})[half] = name, stored
    if not halves:
        raise malformed_error("the adapter has no matrices")
    changes = {}
    for key, pair in halves.items():
        if pair.keys() != {"a", "b"}:
            raise malformed_error(f"the adapter has one half of {key[1]} in layer {key[0]} alone")
        changes[key] = _low_rank(key, _numbers(*pair["a"]), _numbers(*pair["b"]), alpha)
    return Adapter(changes, file.metadata.get("general.architecture") in NEIGHBOURS)


def _alpha(file: Gguf) -> float:
    """By what products are multiplied, times the rank; 0 for not at all."""
    kinds = file.metadata.get("general.type"), file.metadata.get("adapter.type")
    if kinds != ("adapter", "lora"):
        raise unsupported_error(
            "GGUF files that are no LoRA adapters", "give the file of an adapter"
        )
    if any(name.startswith("adapter.alora") for name in file.metadata):
        raise unsupported_error("adapters that begin at some tokens (aLoRA)")
    alpha = file.metadata.get("adapter.lora.alpha", 0.0)
    if type(alpha) is not float or not math.isfinite(alpha):
        raise malformed_error("the file states no usable adapter.lora.alpha")
    return alpha


def _low_rank(key: Key, first: Array, second: Array, alpha: float) -> LowRank:
    if first.ndim != 2 or second.ndim != 2 or first.shape[0] != second.shape[1]:
        raise malformed_error(f"the halves of {key[1]} in layer {key[0]} have different ranks")
    rank = first.shape[0]
    if not rank:
        raise malformed_error(f"{key[1]} in layer {key[0]} has the rank 0")
    up = second.T * np.float32(alpha / rank if alpha else 1.0)
    check_finite(key, first, up)
    return LowRank(np.ascontiguousarray(first.T), np.ascontiguousarray(up))


def _numbers(name: str, stored: Stored) -> Array:
    """float32."""
    count = math.prod(stored.shape)
    forms = {_F32: "<f4", _F16: "<f2", _BF16: "<u2"}
    if stored.kind == _Q8_0 and count % _BLOCK == 0:
        blocks = _bytes(name, stored, count // _BLOCK * (_BLOCK + 2)).reshape(-1, _BLOCK + 2)
        scales = np.ascontiguousarray(blocks[:, :2]).view("<f2").astype(np.float32)
        numbers = np.ascontiguousarray(blocks[:, 2:]).view(np.int8).astype(np.float32)
        return np.asarray((numbers * scales).reshape(stored.shape))
    if stored.kind not in forms:
        raise unsupported_error(
            f"adapters in the format {stored.kind}, as {name[:60]!r} has it,",
            "convert it with --outtype f32, f16, bf16 or q8_0",
        )
    form = np.dtype(forms[stored.kind])
    values = _bytes(name, stored, count * form.itemsize).view(form).reshape(stored.shape)
    if stored.kind == _BF16:
        # The upper half of a float32's bits.
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32)


def _bytes(name: str, stored: Stored, size: int) -> Array:
    if size > len(stored.data):
        raise malformed_error(f"the tensor {name[:100]!r} is longer than the file")
    return np.array(stored.data[:size])
