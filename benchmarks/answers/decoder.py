"""A llama decoder of a GGUF file in torch, in float32, without caches; its weights are read here
alone, by what llama.cpp's formats mean.
"""

from typing import Any

import numpy as np
import torch

from compiler.ir.gguf.file import Gguf, Stored

_FLOATS: dict[int, np.dtype[Any]] = {0: np.dtype("<f4"), 1: np.dtype("<f2")}
_BLOCKS = {
    2: np.dtype([("scale", "<f2"), ("few", "u1", 16)]),
    3: np.dtype([("scale", "<f2"), ("least", "<f2"), ("few", "u1", 16)]),
    8: np.dtype([("scale", "<f2"), ("whole", "i1", 32)]),
}
"""By the format's number: Q4_0, Q4_1, Q8_0."""


class Decoder:
    """Called with tokens, gives the scores [tokens, words] behind each."""

    def __init__(self, file: Gguf) -> None:
        self._weights = {name: _tensor(stored) for name, stored in file.tensors.items()}
        meta = file.metadata
        self._layers = int(meta["llama.block_count"])
        self._heads = int(meta["llama.attention.head_count"])
        self._groups = int(meta.get("llama.attention.head_count_kv", self._heads))
        self._base = float(meta.get("llama.rope.freq_base", 10000.0))
        self._epsilon = float(meta["llama.attention.layer_norm_rms_epsilon"])
        self._size = int(meta["llama.embedding_length"]) // self._heads

    def __call__(self, tokens: list[int]) -> torch.Tensor:
        """The scores."""
        x = self._weights["token_embd.weight"][tokens]
        mask = torch.full((len(tokens),) * 2, float("-inf")).triu(1)
        for i in range(self._layers):
            own = f"blk.{i}."
            x = x + self._attention(self._normal(x, f"{own}attn_norm"), own, mask)
            x = x + self._forward(self._normal(x, f"{own}ffn_norm"), own)
        head = "output" if "output.weight" in self._weights else "token_embd"
        return self._matmul(self._normal(x, "output_norm"), head)

    def _matmul(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ self._weights[f"{name}.weight"].T

    def _normal(self, x: torch.Tensor, name: str) -> torch.Tensor:
        root = torch.rsqrt(x.square().mean(-1, keepdim=True) + self._epsilon)
        return x * root * self._weights[f"{name}.weight"]

    def _attention(self, x: torch.Tensor, own: str, mask: torch.Tensor) -> torch.Tensor:
        count = len(x)
        q, k, v = (
            self._matmul(x, f"{own}attn_{part}").view(count, -1, self._size) for part in "qkv"
        )
        q, k = self._turned(q), self._turned(k)
        k, v = (part.repeat_interleave(self._heads // self._groups, 1) for part in (k, v))
        scores = torch.einsum("nhd,mhd->hnm", q, k) / self._size**0.5 + mask
        seen = torch.einsum("hnm,mhd->nhd", scores.softmax(-1), v)
        return self._matmul(seen.reshape(count, -1), f"{own}attn_output")

    def _turned(self, x: torch.Tensor) -> torch.Tensor:
        """Neighbours of a head rotate together."""
        steps = self._base ** (-torch.arange(0, self._size, 2, dtype=torch.float64) / self._size)
        angles = torch.arange(len(x), dtype=torch.float64)[:, None, None] * steps
        cos, sin = angles.cos().float(), angles.sin().float()
        one, two = x[..., ::2], x[..., 1::2]
        return torch.stack([one * cos - two * sin, one * sin + two * cos], -1).flatten(-2)

    def _forward(self, x: torch.Tensor, own: str) -> torch.Tensor:
        gate = torch.nn.functional.silu(self._matmul(x, f"{own}ffn_gate"))
        return self._matmul(gate * self._matmul(x, f"{own}ffn_up"), f"{own}ffn_down")


def _tensor(stored: Stored) -> torch.Tensor:
    count = int(np.prod(stored.shape))
    if stored.kind in _FLOATS:
        result = np.frombuffer(stored.data, _FLOATS[stored.kind], count).astype(np.float32)
    else:
        result = _blocks(np.frombuffer(stored.data, _BLOCKS[stored.kind], count // 32))
    return torch.from_numpy(result.reshape(stored.shape))


def _blocks(stored: np.ndarray) -> np.ndarray:
    """float32 of blocks of 32 numbers."""
    scale = stored["scale"].astype(np.float32)[:, None]
    names = stored.dtype.names or ()
    if "whole" in names:
        return np.asarray(stored["whole"] * scale, np.float32)
    few = np.concatenate([stored["few"] & 15, stored["few"] >> 4], 1).astype(np.float32)
    if "least" in names:
        return np.asarray(few * scale + stored["least"].astype(np.float32)[:, None])
    return np.asarray((few - 8) * scale)
