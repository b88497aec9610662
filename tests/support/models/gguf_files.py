"""Tiny GGUF files, and what llama.cpp's formats and decoder mean, written out in float64."""

import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.models import gguf_blocks

F32, F16, Q4_0, Q4_1, Q8_0, Q2_K = 0, 1, 2, 3, 8, 10
WORDS, LAYERS, HEADS, GROUPS, SIZE, HIDDEN, LONGEST = 50, 2, 4, 2, 16, 96, 64
WIDTH = HEADS * SIZE
BASE, EPSILON = 5000.0, 1e-5
METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.block_count": LAYERS,
    "llama.context_length": LONGEST,
    "llama.embedding_length": WIDTH,
    "llama.feed_forward_length": HIDDEN,
    "llama.attention.head_count": HEADS,
    "llama.attention.head_count_kv": GROUPS,
    "llama.rope.freq_base": BASE,
    "llama.attention.layer_norm_rms_epsilon": EPSILON,
    "tokenizer.ggml.tokens": ["a", "ä"],
    "general.scores": [1, 2, 3],
}
Array = np.ndarray[Any, Any]


def encode(array: Array, kind: int) -> bytes:
    """The array in blocks, by any rounding; the last block of a Q4_1 has one value. Other formats
    hold numbers of the array's magnitude alone.
    """
    if kind in (F32, F16):
        return array.astype("<f4" if kind == F32 else "<f2").tobytes()
    if kind in gguf_blocks.SIZES:
        magnitude = 3 * float(array.std())
        return gguf_blocks.draw_blocks(kind, array.size, magnitude, seed=array.size)
    parts = []
    blocks = array.reshape(-1, 32).astype(np.float64)
    for position, block in enumerate(blocks):
        if kind == Q4_1 and position == len(blocks) - 1:
            parts.append(struct.pack("<ee", 0.0, block[0]) + bytes([7] * 16))
        else:
            parts.append(_block(block, kind))
    return b"".join(parts)


def _block(block: Array, kind: int) -> bytes:
    if kind == Q8_0:
        scale = float(np.abs(block).max() / 127)
        full = np.rint(block / scale).astype(np.int8)
        return struct.pack("<e", scale) + full.tobytes()
    low = float(block.min()) if kind == Q4_1 else 0.0
    scale = float((block.max() - low) / 15 if kind == Q4_1 else block[np.abs(block).argmax()] / -8)
    offset = 0 if kind == Q4_1 else 8
    full = np.clip(np.rint((block - low) / scale) + offset, 0, 15).astype(np.uint8)
    head = struct.pack("<ee", scale, low) if kind == Q4_1 else struct.pack("<e", scale)
    return head + (full[:16] | full[16:] << 4).tobytes()


def decode(data: bytes, kind: int, shape: tuple[int, ...]) -> Array:
    """float64, number by number."""
    if kind in (F32, F16):
        return np.frombuffer(data, "<f4" if kind == F32 else "<f2").reshape(shape).astype("f8")
    if kind in gguf_blocks.SIZES:
        return np.array(gguf_blocks.dequantize_blocks(data, kind)).reshape(shape)
    size = {Q4_0: 18, Q4_1: 20, Q8_0: 34}[kind]
    result: list[float] = []
    for index in range(0, len(data), size):
        (scale,) = struct.unpack_from("<e", data, index)
        if kind == Q8_0:
            result += [scale * one for one in struct.unpack_from("<32b", data, index + 2)]
            continue
        (low,) = struct.unpack_from("<e", data, index + 2) if kind == Q4_1 else (-8 * scale,)
        stored = data[index + size - 16 : index + size]
        result += [scale * (byte & 15) + low for byte in stored]
        result += [scale * (byte >> 4) + low for byte in stored]
    return np.array(result).reshape(shape)


def tensors(kind: int, table: int, head: int | None = None) -> dict[str, tuple[int, Array]]:
    """Random weights of the decoder: matrices of a format, the table and an own head of others."""
    draw = np.random.default_rng(11)

    def matrix(rows: int, depth: int) -> Array:
        return draw.standard_normal((rows, depth)) * 1.5 / np.sqrt(depth)

    created = {
        "token_embd.weight": (table, draw.standard_normal((WORDS, WIDTH))),
        "output_norm.weight": (F32, 1 + 0.1 * draw.standard_normal(WIDTH)),
    }
    if head is not None:
        created["output.weight"] = (head, matrix(WORDS, WIDTH))
    shapes = {
        "attn_q": (WIDTH, WIDTH),
        "attn_k": (GROUPS * SIZE, WIDTH),
        "attn_v": (GROUPS * SIZE, WIDTH),
        "attn_output": (WIDTH, WIDTH),
        "ffn_gate": (HIDDEN, WIDTH),
        "ffn_up": (HIDDEN, WIDTH),
        "ffn_down": (WIDTH, HIDDEN),
    }
    for i in range(LAYERS):
        created |= {f"blk.{i}.{n}.weight": (kind, matrix(*shape)) for n, shape in shapes.items()}
        for name in ("attn_norm", "ffn_norm"):
            created[f"blk.{i}.{name}.weight"] = (F32, 1 + 0.1 * draw.standard_normal(WIDTH))
    return created


def write(
    path: Path, stored: Mapping[str, tuple[int, Array]], metadata: Mapping[str, Any] = METADATA
) -> dict[str, Array]:
    """Writes the file; gives what its tensors hold."""
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(stored), len(metadata))]
    parts += [_text(name) + _value(value) for name, value in metadata.items()]
    data, offset, result = [], 0, {}
    for name, (kind, array) in stored.items():
        content = encode(array, kind)
        extents = array.shape[::-1]
        parts.append(_text(name) + struct.pack(f"<I{len(extents)}Q", len(extents), *extents))
        parts.append(struct.pack("<IQ", kind, offset))
        data.append(content + bytes(-len(content) % 32))
        offset += len(data[-1])
        result[name] = decode(content, kind, array.shape)
    head = b"".join(parts)
    path.write_bytes(head + bytes(-len(head) % 32) + b"".join(data))
    return result


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _value(value: Any) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    if isinstance(value, list):
        kind, form = {str: (8, ""), float: (6, "<f"), int: (4, "<I")}[type(value[0])]
        items = b"".join(_text(v) if kind == 8 else struct.pack(form, v) for v in value)
        return struct.pack("<IIQ", 9, kind, len(value)) + items
    if isinstance(value, bool):
        return struct.pack("<IB", 7, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    return struct.pack("<II", 4, value)


def in_blocks(perturb: float = 0.0) -> Callable[[Array], Array]:
    """Rounds blocks of 32 to 8 bits: the greatest magnitude becomes 127. perturb: added before
    that, of the greatest.
    """

    def quantized(x: Array) -> Array:
        blocks = x.reshape(-1, 32)
        greatest = np.abs(blocks).max(1, keepdims=True)
        step = np.where(greatest > 0, greatest, 1) / 127
        return np.asarray((np.rint(blocks / step + 127 * perturb) * step).reshape(x.shape))

    return quantized


def logits(
    weights: Mapping[str, Array],
    tokens: list[int],
    quantized: Callable[[Array], Array] = lambda x: x,
) -> Array:
    """[tokens, words] of llama.cpp's decoder, in float64; quantized: what becomes of the left sides
    of matmuls by weights.
    """
    x = weights["token_embd.weight"][tokens]
    count = len(tokens)
    mask = np.triu(np.full((count, count), -np.inf), 1)
    for i in range(LAYERS):
        own = {name: weights[f"blk.{i}.{name}.weight"] for name in _OF_LAYER}
        y = quantized(_normalized(x, own["attn_norm"]))
        q, k, v = ((y @ own[f"attn_{part}"].T).reshape(count, -1, SIZE) for part in "qkv")
        q, k = _turned(q), _turned(k)
        seen = []
        for head in range(HEADS):
            group = head // (HEADS // GROUPS)
            scores = q[:, head] @ k[:, group].T / np.sqrt(SIZE) + mask
            shares = np.exp(scores - scores.max(1, keepdims=True))
            seen.append(shares / shares.sum(1, keepdims=True) @ v[:, group])
        x = x + quantized(np.concatenate(seen, 1)) @ own["attn_output"].T
        y = quantized(_normalized(x, own["ffn_norm"]))
        gate = y @ own["ffn_gate"].T
        x = x + quantized(gate / (1 + np.exp(-gate)) * (y @ own["ffn_up"].T)) @ own["ffn_down"].T
    last = weights.get("output.weight", weights["token_embd.weight"])
    return np.asarray(quantized(_normalized(x, weights["output_norm.weight"])) @ last.T)


_OF_LAYER = (
    *("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output"),
    *("ffn_norm", "ffn_gate", "ffn_up", "ffn_down"),
)


def _normalized(x: Array, scale: Array) -> Array:
    return np.asarray(x / np.sqrt(np.square(x).mean(1, keepdims=True) + EPSILON) * scale)


def _turned(x: Array) -> Array:
    """Neighbours of a head rotate together."""
    angles = np.arange(len(x))[:, None] * BASE ** (-np.arange(0, SIZE, 2) / SIZE)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    result = np.empty_like(x)
    result[..., ::2] = x[..., ::2] * cos - x[..., 1::2] * sin
    result[..., 1::2] = x[..., ::2] * sin + x[..., 1::2] * cos
    return result
