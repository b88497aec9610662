"""The decoder that a GGUF file of the architecture `llama` describes."""

from typing import Any

import onnx

from compiler.errors import LoadError
from compiler.ir.decoders.design import (
    MOST_ANGLES,
    Design,
    Layer,
    Named,
    Part,
    Rotation,
    plain_steps,
)
from compiler.ir.decoders.model import decoder_model
from compiler.ir.decoders.quantized import dequantize
from compiler.ir.gguf.blocks import tensor_of
from compiler.ir.gguf.file import Gguf

_OTHERS = ("rope.scaling.type", "expert_count", "attention.sliding_window", "rope.scale_linear")
"""Metadata of decoders that compute something else."""
_NEUTRAL = (None, 0, 1.0, "none")
_TABLE = "token_embd.weight"
_NAMES = {
    Part.TABLE: _TABLE,
    Part.HEAD: "output.weight",
    Part.LAST_NORM: "output_norm.weight",
    Part.SEEN_NORM: "blk.{}.attn_norm.weight",
    Part.QUERY: "blk.{}.attn_q.weight",
    Part.KEY: "blk.{}.attn_k.weight",
    Part.VALUE: "blk.{}.attn_v.weight",
    Part.MIXED: "blk.{}.attn_output.weight",
    Part.READ_NORM: "blk.{}.ffn_norm.weight",
    Part.GATE: "blk.{}.ffn_gate.weight",
    Part.UP: "blk.{}.ffn_up.weight",
    Part.DOWN: "blk.{}.ffn_down.weight",
}


def decoder_of(file: Gguf) -> onnx.ModelProto:
    """The model; raises LoadError for a file that describes another."""
    return decoder_model(_design(file), _Tensors(file))


class _Tensors:
    """`Weights` of a GGUF file."""

    def __init__(self, file: Gguf) -> None:
        self._file = file

    def matrix(self, part: Part, layer: int | None, rows: int, depth: int) -> Named:
        """See Weights."""
        name = _NAMES[part].format(layer)
        if part is Part.HEAD and name not in self._file.tensors:
            name = _TABLE
        return self._tensor(name, rows, depth)

    def bias(self, part: Part, layer: int | None, size: int) -> Named | None:
        """See Weights."""
        return None

    def norm(self, part: Part, layer: int | None, size: int) -> Named | None:
        """See Weights."""
        if part not in _NAMES:
            return None
        weight = self._tensor(_NAMES[part].format(layer), size)
        return Named(weight.name, dequantize(weight.tensor))

    def _tensor(self, name: str, *shape: int) -> Named:
        stored = self._file.tensors.get(name)
        if stored is None or stored.shape != shape:
            raise LoadError(
                f"the GGUF file has no tensor {name!r}"
                + (f" of the shape {list(shape)}" if stored else ""),
                reason="gguf",
                field="model",
            )
        return Named(name, tensor_of(name, stored))


def _design(file: Gguf) -> Design:
    _refuse_others(file)
    layers, width, heads = (
        _count(file, name) for name in ("block_count", "embedding_length", "attention.head_count")
    )
    groups, longest = (
        _count(file, "attention.head_count_kv", heads),
        _count(file, "context_length"),
    )
    size = width // heads
    if width % heads or heads % groups:
        raise _unsupported("heads of different sizes")
    if longest * size > MOST_ANGLES:
        raise _unsupported(f"contexts of {longest} tokens")
    if _count(file, "rope.dimension_count", size) != size:
        raise _unsupported("heads of which a part is rotated")
    rotation = Rotation("", plain_steps(float(_meta(file, "rope.freq_base", 10000.0)), size))
    table = file.tensors.get(_TABLE)
    return Design(
        layers=(Layer(rotation),) * layers,
        vocabulary=table.shape[0] if table is not None and len(table.shape) == 2 else 0,
        width=width,
        heads=heads,
        groups=groups,
        size=size,
        hidden=_count(file, "feed_forward_length"),
        longest=longest,
        epsilon=float(_meta(file, "attention.layer_norm_rms_epsilon", 1e-5)),
        # llama.cpp's converter orders the rows of queries and keys so that neighbours rotate.
        neighbours=True,
    )


def _refuse_others(file: Gguf) -> None:
    kind = file.metadata.get("general.architecture")
    if kind != "llama":
        raise _unsupported(f"GGUF files of the architecture {str(kind)[:40]!r}")
    for name in _OTHERS:
        if _meta(file, name) not in _NEUTRAL:
            raise _unsupported(f"decoders with {name}")
    if "rope_freqs.weight" in file.tensors:
        raise _unsupported("rotations with factors of their own")


def _meta(file: Gguf, name: str, default: Any = None) -> Any:
    return file.metadata.get(f"llama.{name}", default)


def _count(file: Gguf, name: str, default: int | None = None) -> int:
    value = _meta(file, name, default)
    if type(value) is not int or not 0 < value < 1 << 24:
        raise LoadError(
            f"the GGUF file states no usable llama.{name}", reason="gguf", field="model"
        )
    return value


def _unsupported(what: str) -> LoadError:
    return LoadError(
        f"{what} are not supported",
        reason="gguf_architecture",
        field="model",
        hint="export the model to ONNX, as with onnxruntime-genai's builder",
    )
