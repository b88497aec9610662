"""The decoder that a GGUF file of the architecture `llama` describes, as an ONNX model with caches
in the form of onnxruntime-genai's builder.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from compiler.errors import LoadError
from compiler.ir.gguf.blocks import Quantized, reals, tensor_of
from compiler.ir.gguf.file import Gguf
from compiler.ir.gguf.formats import Array

_MICROSOFT = "com.microsoft"
_OPSET = 21
_OTHERS = ("rope.scaling.type", "expert_count", "attention.sliding_window", "rope.scale_linear")
"""Metadata of decoders that compute something else."""
_NEUTRAL = (None, 0, 1.0, "none")
_MOST_ANGLES = 1 << 26
_ROUNDED = 4
"""The accuracy_level at which what blocks of few bits are multiplied by is rounded to 8 bits too,
block by block, as llama.cpp does it.
"""


def decoder_of(file: Gguf) -> onnx.ModelProto:
    """The model; raises LoadError for a file that describes another."""
    return _Decoder(file).model()


class _Decoder:
    def __init__(self, file: Gguf) -> None:
        self.file = file
        kind = file.metadata.get("general.architecture")
        if kind != "llama":
            raise _unsupported(f"GGUF files of the architecture {str(kind)[:40]!r}")
        for name in _OTHERS:
            if file.metadata.get(f"llama.{name}") not in _NEUTRAL:
                raise _unsupported(f"decoders with {name}")
        if "rope_freqs.weight" in file.tensors:
            raise _unsupported("rotations with factors of their own")
        self.layers, self.width, self.heads = (
            self._count(name)
            for name in ("block_count", "embedding_length", "attention.head_count")
        )
        self.groups = self._count("attention.head_count_kv", self.heads)
        self.longest = self._count("context_length")
        self.size = self.width // self.heads
        if self.width % self.heads or self.heads % self.groups:
            raise _unsupported("heads of different sizes")
        if self.longest * self.size > _MOST_ANGLES:
            raise _unsupported(f"contexts of {self.longest} tokens")
        if self._count("rope.dimension_count", self.size) != self.size:
            raise _unsupported("heads of which a part is rotated")
        self.epsilon = float(self._meta("attention.layer_norm_rms_epsilon", 1e-5))
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}

    def _meta(self, name: str, default: Any = None) -> Any:
        return self.file.metadata.get(f"llama.{name}", default)

    def _count(self, name: str, default: int | None = None) -> int:
        value = self._meta(name, default)
        if type(value) is not int or not 0 < value < 1 << 24:
            raise LoadError(
                f"the GGUF file states no usable llama.{name}", reason="gguf", field="model"
            )
        return value

    def _tensor(self, name: str, *shape: int) -> Array | Quantized:
        stored = self.file.tensors.get(name)
        if stored is None or (shape and stored.shape != shape):
            raise LoadError(
                f"the GGUF file has no tensor {name!r}"
                + (f" of the shape {list(shape)}" if stored else ""),
                reason="gguf",
                field="model",
            )
        return tensor_of(name, stored)

    def _node(self, op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))
        return output

    def _constant(self, name: str, array: Array) -> str:
        if name not in self.constants:
            self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name

    def _product(self, x: str, name: str, output: str, shape: tuple[int, int]) -> str:
        """x times the transpose of the tensor [columns, depth]."""
        tensor = self._tensor(name, *shape)
        if isinstance(tensor, Quantized):
            return self._few_bits(x, name, output, tensor)
        return self._node("MatMul", [x, self._constant(f"{name}.T", tensor.T)], output)

    def _few_bits(self, x: str, name: str, output: str, table: Quantized) -> str:
        inputs = [
            x,
            self._constant(f"{name}.numbers", table.numbers),
            self._constant(f"{name}.scales", table.scales),
        ]
        if table.zeros is not None:
            inputs.append(self._constant(f"{name}.zeros", table.zeros))
        columns, depth = table.shape
        return self._node(
            "MatMulNBits",
            inputs,
            output,
            domain=_MICROSOFT,
            K=depth,
            N=columns,
            bits=table.bits,
            block_size=table.block,
            accuracy_level=_ROUNDED,
        )

    def _normalized(self, x: str, name: str, output: str) -> str:
        scale = self._constant(name, reals(self._tensor(name, self.width)))
        return self._node(
            "SimplifiedLayerNormalization", [x, scale], output, axis=-1, epsilon=self.epsilon
        )

    def _embedded(self, words: int) -> str:
        """Rows of the table of tokens."""
        table = self._tensor("token_embd.weight", words, self.width)
        if isinstance(table, Quantized) and table.zeros is None:
            flat = table.numbers.reshape(words, -1)
            # The matmul's own tensors in another shape: the library holds them once.
            return self._node(
                "GatherBlockQuantized",
                [
                    self._constant("token_embd.rows", flat),
                    "input_ids",
                    self._constant("token_embd.weight.scales", table.scales),
                ],
                "h0",
                domain=_MICROSOFT,
                bits=table.bits,
                block_size=table.block,
                gather_axis=0,
                quantize_axis=1,
            )
        rows = self._constant("token_embd.weight", reals(table))
        return self._node("Gather", [rows, "input_ids"], "h0")

    def _lengths(self) -> None:
        """The place of each entry's last token, and the longest entry's length."""
        one = self._constant("one", np.array([1]))
        self._node("ReduceSum", ["attention_mask", one], "sums", keepdims=0)
        self._node("Sub", ["sums", one], "ends")
        self._node("Cast", ["ends"], "last", to=TensorProto.INT32)
        self._node("Shape", ["attention_mask"], "extents")
        place = self._constant("place", np.array(1))
        self._node("Gather", ["extents", place], "most", axis=0)
        self._node("Cast", ["most"], "longest", to=TensorProto.INT32)

    def _rotations(self) -> None:
        base = float(self._meta("rope.freq_base", 10000.0))
        steps = base ** (-np.arange(0, self.size, 2, dtype=np.float64) / self.size)
        angles = np.arange(self.longest)[:, None] * steps
        self._constant("cos", np.cos(angles).astype(np.float32))
        self._constant("sin", np.sin(angles).astype(np.float32))

    def _attention(self, x: str, i: int) -> str:
        sizes = {"q": self.width, "k": self.groups * self.size, "v": self.groups * self.size}
        given = [
            self._product(x, f"blk.{i}.attn_{part}.weight", f"{part}{i}", (size, self.width))
            for part, size in sizes.items()
        ]
        past = [f"past_key_values.{i}.{part}" for part in ("key", "value")]
        present = [f"present.{i}.{part}" for part in ("key", "value")]
        # llama.cpp's converter orders the rows of queries and keys so that neighbours rotate.
        node = helper.make_node(
            "GroupQueryAttention",
            [*given, *past, "last", "longest", "cos", "sin"],
            [f"seen{i}", *present],
            name=f"seen{i}",
            domain=_MICROSOFT,
            num_heads=self.heads,
            kv_num_heads=self.groups,
            do_rotary=1,
            rotary_interleaved=1,
        )
        self.nodes.append(node)
        name = f"blk.{i}.attn_output.weight"
        return self._product(f"seen{i}", name, f"mixed{i}", (self.width, self.width))

    def _forward(self, x: str, i: int) -> str:
        hidden = self._count("feed_forward_length")
        gate, up = (
            self._product(x, f"blk.{i}.ffn_{part}.weight", f"{part}{i}", (hidden, self.width))
            for part in ("gate", "up")
        )
        self._node("Sigmoid", [gate], f"open{i}")
        self._node("Mul", [gate, f"open{i}"], f"let{i}")
        self._node("Mul", [f"let{i}", up], f"wide{i}")
        name = f"blk.{i}.ffn_down.weight"
        return self._product(f"wide{i}", name, f"down{i}", (self.width, hidden))

    def model(self) -> onnx.ModelProto:
        """The whole graph."""
        table = self.file.tensors.get("token_embd.weight")
        words = table.shape[0] if table is not None and len(table.shape) == 2 else 0
        x = self._embedded(words)
        self._lengths()
        self._rotations()
        for i in range(self.layers):
            seen = self._normalized(x, f"blk.{i}.attn_norm.weight", f"n{i}")
            x = self._node("Add", [x, self._attention(seen, i)], f"a{i}")
            read = self._normalized(x, f"blk.{i}.ffn_norm.weight", f"m{i}")
            x = self._node("Add", [x, self._forward(read, i)], f"h{i + 1}")
        x = self._normalized(x, "output_norm.weight", "final")
        head = "output.weight" if "output.weight" in self.file.tensors else "token_embd.weight"
        self._product(x, head, "logits", (words, self.width))
        return self._closed(words)

    def _closed(self, words: int) -> onnx.ModelProto:
        batch, rows = "batch_size", "sequence_length"
        past, total = "past_sequence_length", "total_sequence_length"
        inputs = {"input_ids": [batch, rows], "attention_mask": [batch, total]}
        names = [f"{i}.{part}" for i in range(self.layers) for part in ("key", "value")]
        caches: Mapping[str, list[str | int]] = {
            f"past_key_values.{name}": [batch, self.groups, past, self.size] for name in names
        }
        presents: Mapping[str, list[str | int]] = {
            f"present.{name}": [batch, self.groups, total, self.size] for name in names
        }
        graph = helper.make_graph(
            self.nodes,
            "decoder",
            [
                *(_info(name, TensorProto.INT64, shape) for name, shape in inputs.items()),
                *(_info(name, TensorProto.FLOAT, shape) for name, shape in caches.items()),
            ],
            [
                _info("logits", TensorProto.FLOAT, [batch, rows, words]),
                *(_info(name, TensorProto.FLOAT, shape) for name, shape in presents.items()),
            ],
            list(self.constants.values()),
        )
        opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(_MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _info(name: str, kind: int, shape: Any) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def _unsupported(what: str) -> LoadError:
    return LoadError(
        f"{what} are not supported",
        reason="gguf_architecture",
        field="model",
        hint="export the model to ONNX, as with onnxruntime-genai's builder",
    )
