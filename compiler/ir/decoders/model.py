"""A decoder as an ONNX model with caches in the form of onnxruntime-genai's builder."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from compiler.ir.decoders.adapters import AdapterSites, Slice
from compiler.ir.decoders.design import Activation, Design, Named, Part, Weights
from compiler.ir.decoders.graph import MICROSOFT, Graph
from compiler.ir.decoders.quantized import Quantized, dequantize

_CACHES = ("key", "value")


def decoder_model(
    design: Design, weights: Weights, adapters: AdapterSites | None = None
) -> onnx.ModelProto:
    """The decoder, with adapters where it is given sites for them; raises LoadError for weights
    that are missing or have other shapes.
    """
    return _Decoder(design, weights, adapters).model()


class _Decoder:
    def __init__(self, design: Design, weights: Weights, adapters: AdapterSites | None) -> None:
        self.design, self.weights, self.adapters = design, weights, adapters
        self.graph = Graph()

    def model(self) -> onnx.ModelProto:
        design, graph = self.design, self.graph
        table = self.weights.matrix(Part.TABLE, None, design.vocabulary, design.width)
        x = graph.rows(table, "input_ids", "h0")
        x = self._scaled(x, design.table_scale, "table_scale", f"{x}.scaled")
        self._lengths()
        for i in range(len(design.layers)):
            x = self._layer(x, i)
        x = self._normalized(x, Part.LAST_NORM, None, "final")
        head = self.weights.matrix(Part.HEAD, None, design.vocabulary, design.width)
        changed = design.logit_cap is not None or design.logit_scale is not None
        x = graph.matmul(x, head, "scores" if changed else "logits")
        if design.logit_scale is not None:
            x = self._scaled(x, design.logit_scale, "logit_scale", "logits")
        if design.logit_cap is not None:
            self._capped(x, "logits")
        return self._closed()

    def _layer(self, x: str, i: int) -> str:
        seen = self._normalized(x, Part.SEEN_NORM, i, f"n{i}")
        mixed = self._normalized(self._attention(seen, i), Part.MIXED_NORM, i, f"o{i}")
        x = self._residual(x, mixed, f"a{i}")
        read = self._normalized(x, Part.READ_NORM, i, f"m{i}")
        down = self._normalized(self._forward(read, i), Part.DOWN_NORM, i, f"d{i}")
        return self._residual(x, down, f"h{i + 1}")

    def _scaled(self, x: str, scale: float | None, name: str, output: str) -> str:
        if scale is None:
            return x
        factor = self.graph.constant(name, np.array(scale, np.float32))
        return self.graph.node("Mul", [x, factor], output)

    def _residual(self, x: str, added: str, output: str) -> str:
        scale = self.design.residual_scale
        added = self._scaled(added, scale, "residual_scale", f"{added}.scaled")
        return self.graph.node("Add", [x, added], output)

    def _capped(self, x: str, output: str) -> None:
        cap = self.graph.constant("word_cap", np.array(self.design.logit_cap, np.float32))
        self.graph.node("Div", [x, cap], f"{x}.part")
        self.graph.node("Tanh", [f"{x}.part"], f"{x}.bent")
        self.graph.node("Mul", [f"{x}.bent", cap], output)

    def _normalized(self, x: str, part: Part, layer: int | None, output: str) -> str:
        return self._normalized_rows(x, part, layer, output, self.design.width)

    def _normalized_rows(
        self, x: str, part: Part, layer: int | None, output: str, width: int
    ) -> str:
        """x itself where the decoder does not normalize here."""
        norm = self.weights.norm(part, layer, width)
        if norm is None:
            return x
        scale = self.graph.constant(norm.name, norm.tensor)  # type: ignore[arg-type]
        return self.graph.node(
            "SimplifiedLayerNormalization",
            [x, scale],
            output,
            axis=-1,
            epsilon=self.design.epsilon,
        )

    def _matmul(self, x: str, part: Part, i: int, output: str, shape: tuple[int, int]) -> str:
        """x times one of the layer's matrices [columns, depth], plus its bias and adapters."""
        matrix = self.weights.matrix(part, i, *shape)
        slices = self._adapted(Slice(part, 0, *shape))
        return self._sum(x, matrix, self.weights.bias(part, i, shape[0]), i, slices, output)

    def _sum(
        self,
        x: str,
        matrix: Named,
        bias: Named | None,
        i: int,
        slices: list[Slice],
        output: str,
    ) -> str:
        """x times a matrix, plus its bias, and what the adapters of some of its columns add."""
        if self.adapters is None or not slices:
            return self._added(x, matrix, bias, output)
        base = self._added(x, matrix, bias, f"{output}.base")
        return self.adapters.add(self.graph, x, base, i, slices, output)

    def _adapted(self, *slices: Slice) -> list[Slice]:
        """Those that have adapters."""
        return [one for one in slices if self.adapters and self.adapters.targets(one.part)]

    def _added(self, x: str, matrix: Named, bias: Named | None, output: str) -> str:
        if bias is None:
            return self.graph.matmul(x, matrix, output)
        result = self.graph.matmul(x, matrix, f"{output}.product")
        added = self.graph.constant(bias.name, bias.tensor)  # type: ignore[arg-type]
        return self.graph.node("Add", [result, added], output)

    def _lengths(self) -> None:
        """The position of each entry's last token, and the longest entry's length."""
        graph = self.graph
        one = graph.constant("one", np.array([1]))
        graph.node("ReduceSum", ["attention_mask", one], "sums", keepdims=0)
        graph.node("Sub", ["sums", one], "ends")
        graph.node("Cast", ["ends"], "last", to=TensorProto.INT32)
        graph.node("Shape", ["attention_mask"], "extents")
        axis = graph.constant("place", np.array(1))
        graph.node("Gather", ["extents", axis], "most", axis=0)
        graph.node("Cast", ["most"], "longest", to=TensorProto.INT32)

    def _attention(self, x: str, i: int) -> str:
        design, layer = self.design, self.design.layers[i]
        query, key, value = self._projected(x, i)
        past = [f"past_key_values.{i}.{half}" for half in _CACHES]
        present = [f"present.{i}.{half}" for half in _CACHES]
        others, attributes = ["last", "longest"], self._seen(i)
        if layer.rotation is not None:
            name = layer.rotation.name
            tables = layer.rotation.tables(design.longest)
            turns = zip((f"cos{name}", f"sin{name}"), tables, strict=True)
            others += [self.graph.constant(table, content) for table, content in turns]
            attributes |= {"do_rotary": 1, "rotary_interleaved": int(design.neighbours)}
        self.graph.node(
            "GroupQueryAttention",
            [query, key, value, *past, *others],
            f"seen{i}",
            *present,
            domain=MICROSOFT,
            num_heads=design.heads,
            kv_num_heads=design.groups,
            **attributes,
        )
        shape = (design.width, design.heads * design.size)
        return self._matmul(f"seen{i}", Part.MIXED, i, f"mixed{i}", shape)

    def _projected(self, x: str, i: int) -> tuple[str, str, str]:
        """Query, key and value; all of them as the query, and no others, where one matmul gives
        them: a row of x is then rounded once, and threads wait for each other once.
        """
        design, weights = self.design, self.weights
        few, many = design.groups * design.size, design.heads * design.size
        sizes = {Part.QUERY: many, Part.KEY: few, Part.VALUE: few}
        matrices = [weights.matrix(part, i, size, design.width) for part, size in sizes.items()]
        biases = [weights.bias(part, i, size) for part, size in sizes.items()]
        norms = [
            weights.norm(part, i, sizes[of] if design.joint_norms else design.size)
            for part, of in ((Part.QUERY_NORM, Part.QUERY), (Part.KEY_NORM, Part.KEY))
        ]
        starts = (0, many, many + few)
        slices = [
            Slice(part, start, size, design.width)
            for start, (part, size) in zip(starts, sizes.items(), strict=True)
        ]
        if norms == [None, None] and (matrix := _stacked(matrices)) is not None:
            joined = _joined(biases, list(sizes.values()))
            return self._sum(x, matrix, joined, i, self._adapted(*slices), f"qkv{i}"), "", ""
        query, key, value = (
            self._sum(x, matrix, bias, i, self._adapted(replace(one, start=0)), f"{name}{i}")
            for name, matrix, bias, one in zip("qkv", matrices, biases, slices, strict=True)
        )
        if design.joint_norms:
            query = self._normalized_rows(query, Part.QUERY_NORM, i, f"{query}.normal", many)
            key = self._normalized_rows(key, Part.KEY_NORM, i, f"{key}.normal", few)
            return query, key, value
        query = self._each_head(query, Part.QUERY_NORM, i)
        return query, self._each_head(key, Part.KEY_NORM, i), value

    def _seen(self, i: int) -> dict[str, Any]:
        """The attributes that say how a layer's tokens look at each other."""
        design, window = self.design, self.design.layers[i].window
        settings = {
            "scale": design.score_scale,
            "softcap": design.score_cap,
            "local_window_size": window,
        }
        return {name: value for name, value in settings.items() if value is not None}

    def _each_head(self, x: str, part: Part, i: int) -> str:
        """Heads of the rows of x, normalized one by one."""
        size, heads = self.design.size, f"{x}.heads"
        if self.weights.norm(part, i, size) is None:
            return x
        apart = self.graph.constant("apart", np.array([0, 0, -1, size]))
        self.graph.node("Reshape", [x, apart], heads)
        normalized = self._normalized_rows(heads, part, i, f"{x}.normal", size)
        joined = self.graph.constant("joined", np.array([0, 0, -1]))
        return self.graph.node("Reshape", [normalized, joined], f"{x}.joined")

    def _forward(self, x: str, i: int) -> str:
        wide = (self.design.hidden, self.design.width)
        gate = self._matmul(x, Part.GATE, i, f"gate{i}", wide)
        up = self._matmul(x, Part.UP, i, f"up{i}", wide)
        if self.design.activation is Activation.GELU_TANH:
            self.graph.node("Gelu", [gate], f"let{i}", approximate="tanh")
        else:
            self.graph.node("Sigmoid", [gate], f"open{i}")
            self.graph.node("Mul", [gate, f"open{i}"], f"let{i}")
        self.graph.node("Mul", [f"let{i}", up], f"wide{i}")
        return self._matmul(f"wide{i}", Part.DOWN, i, f"down{i}", wide[::-1])

    def _closed(self) -> onnx.ModelProto:
        design = self.design
        batch, rows = "batch_size", "sequence_length"
        past, total = "past_sequence_length", "total_sequence_length"
        names = [f"{i}.{half}" for i in range(len(design.layers)) for half in _CACHES]
        integer, real = TensorProto.INT64, TensorProto.FLOAT
        inputs = [
            _info("input_ids", integer, [batch, rows]),
            _info("attention_mask", integer, [batch, total]),
            *(self.adapters.close(design) if self.adapters else ()),
            *(_info(f"past_key_values.{n}", real, self._cache(past)) for n in names),
        ]
        outputs = [
            _info("logits", real, [batch, rows, design.vocabulary]),
            *(_info(f"present.{name}", real, self._cache(total)) for name in names),
        ]
        return self.graph.model(inputs, outputs)

    def _cache(self, rows: str) -> list[str | int]:
        return ["batch_size", self.design.groups, rows, self.design.size]


def _stacked(matrices: Sequence[Named]) -> Named | None:
    """The rows of several block-wise quantized matrices as one, None for others."""
    tables = [one.tensor for one in matrices if isinstance(one.tensor, Quantized)]
    table = Quantized.stack(tables) if len(tables) == len(matrices) else None
    return None if table is None else Named("+".join(one.name for one in matrices), table)


def _joined(biases: Sequence[Named | None], sizes: Sequence[int]) -> Named | None:
    """The biases behind one another, zeros for one that is missing; None where all are."""
    present = [bias for bias in biases if bias is not None]
    each = [
        np.zeros(size, np.float32) if bias is None else dequantize(bias.tensor)
        for bias, size in zip(biases, sizes, strict=True)
    ]
    return Named("+".join(bias.name for bias in present), np.concatenate(each)) if present else None


def _info(name: str, kind: int, shape: list[Any]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)
