"""The layers of an encoder: attention, and two matmuls with an activation between them."""

from collections.abc import Callable
from functools import cached_property
from typing import TypeAlias

import numpy as np
from onnx import TensorProto

from compiler.ir.decoders.graph import MICROSOFT, Graph
from compiler.ir.decoders.quantized import Array
from compiler.ir.encoders.design import Design, Layer, Linear, Part, Weights
from compiler.ir.encoders.nodes import (
    LOWEST,
    activate,
    array_of,
    extent,
    integer,
    integers,
    multiply,
    normalize,
    real,
)

BUCKETS = 32
"""Rows of a table of biases by distance."""
_Half: TypeAlias = Callable[[str, int], str]
"""Adds what half of a layer computes of a name, by the layer's index."""


class Layers:
    """Adds the layers of an encoder to a graph.

    mask: a name of int64 [batch, length], not 0 for tokens that others see.
    longest: the greatest length of a sequence.
    """

    def __init__(
        self, graph: Graph, design: Design, weights: Weights, mask: str, longest: int
    ) -> None:
        self.graph, self.design, self.weights = graph, design, weights
        self.mask, self.longest = mask, longest
        self._biases: dict[int | None, str] = {}

    def add(self, x: str) -> str:
        """The last layer's result, [batch, length, width] as x is."""
        design = self.design
        for index, layer in enumerate(design.layers):
            x = self._half(x, index, Part.MIX_NORM, self._attend(layer))
            x = self._half(x, index, Part.FEED_NORM, self._feed_forward)
        norm = self.weights.norm(Part.LAST_NORM, None, design.width)
        return normalize(self.graph, x, norm, design.epsilon, "final")

    def _half(self, x: str, i: int, part: Part, compute: _Half) -> str:
        graph, design = self.graph, self.design
        name = f"{part.split('_')[0]}{i}"
        norm = self.weights.norm(part, i, design.width)
        if design.norm_first:
            result = compute(normalize(graph, x, norm, design.epsilon, f"{name}.normal"), i)
            return graph.node("Add", [x, result], name)
        total = graph.node("Add", [compute(x, i), x], f"{name}.sum")
        return normalize(graph, total, norm, design.epsilon, name)

    def _feed_forward(self, x: str, i: int) -> str:
        graph, design = self.graph, self.design
        up = multiply(graph, x, self._linear(Part.UP, i, design.hidden, design.width), f"up{i}")
        up = activate(graph, up, design.activation, f"up{i}.active")
        if design.gated:
            gate = self._linear(Part.GATE, i, design.hidden, design.width)
            up = graph.node("Mul", [up, multiply(graph, x, gate, f"gate{i}")], f"up{i}.gated")
        down = self._linear(Part.DOWN, i, design.width, design.hidden)
        return multiply(graph, up, down, f"down{i}")

    def _linear(self, part: Part, i: int, columns: int, depth: int) -> Linear:
        return self.weights.linear(part, i, columns, depth)

    def _attend(self, layer: Layer) -> _Half:
        def attend(x: str, i: int) -> str:
            graph, design = self.graph, self.design
            query, key = (
                self._rotate(self._project(x, part, i), layer) for part in (Part.QUERY, Part.KEY)
            )
            value = self._project(x, Part.VALUE, i)
            query, value = (self._split(name, (0, 2, 1, 3)) for name in (query, value))
            scores = graph.node("MatMul", [query, self._split(key, (0, 2, 3, 1))], f"scores{i}")
            scale = real(graph, "score_scale", design.size**-0.5)
            scores = graph.node("Mul", [scores, scale], f"scores{i}.scaled")
            scores = graph.node("Add", [scores, self._bias(layer.window)], f"scores{i}.biased")
            shares = graph.node("Softmax", [scores], f"shares{i}", axis=-1)
            mixed = graph.node("MatMul", [shares, value], f"heads{i}")
            mixed = graph.node("Transpose", [mixed], f"heads{i}.turned", perm=[0, 2, 1, 3])
            wide = design.heads * design.size
            mixed = graph.node("Reshape", [mixed, integers(graph, 0, 0, wide)], f"heads{i}.joined")
            output = self._linear(Part.MIXED, i, design.width, wide)
            return multiply(graph, mixed, output, f"mixed{i}")

        return attend

    def _project(self, x: str, part: Part, i: int) -> str:
        wide = self.design.heads * self.design.size
        linear = self._linear(part, i, wide, self.design.width)
        return multiply(self.graph, x, linear, f"{part}{i}")

    def _rotate(self, x: str, layer: Layer) -> str:
        if layer.rotation is None:
            return x
        name = layer.rotation.name
        tables = zip(("cos", "sin"), layer.rotation.tables(self.longest), strict=True)
        caches = [self.graph.constant(f"{kind}_{name}", table) for kind, table in tables]
        inputs = [x, integers(self.graph, 0), *caches]
        return self.graph.node("RotaryEmbedding", inputs, f"{x}.rotated", domain=MICROSOFT)

    def _split(self, x: str, order: tuple[int, ...]) -> str:
        graph, design = self.graph, self.design
        shape = integers(graph, 0, 0, design.heads, design.size)
        heads = graph.node("Reshape", [x, shape], f"{x}.heads")
        return graph.node("Transpose", [heads], f"{x}.turned", perm=list(order))

    def _bias(self, window: int | None) -> str:
        """The addend of scores, [batch, 1 or heads, 1 or length, length], by the window."""
        if window not in self._biases:
            self._biases[window] = self._add_bias(window)
        return self._biases[window]

    def _add_bias(self, window: int | None) -> str:
        graph, shown, label = self.graph, self._visible, ""
        if window is not None:
            label = f"_{window}"
            distance = graph.node("Abs", [self._offsets], f"distance{label}")
            near = graph.node("LessOrEqual", [distance, integer(graph, window)], f"near{label}")
            shown = graph.node("And", [shown, near], f"shown{label}")
        levels = [real(graph, "shown_level", 0.0), real(graph, "hidden_level", LOWEST)]
        mask = graph.node("Where", [shown, *levels], f"mask{label}")
        if not self.design.distances:
            return mask
        return graph.node("Add", [self._distance_bias, mask], f"bias{label}")

    @cached_property
    def _visible(self) -> str:
        """bool [batch, 1, 1, length]."""
        flat = self.graph.node("Cast", [self.mask], "visible.flat", to=TensorProto.BOOL)
        return self.graph.node("Unsqueeze", [flat, integers(self.graph, 1, 2)], "visible")

    @cached_property
    def _offsets(self) -> str:
        """The position of a key less that of the query, int64 [length, length]."""
        graph = self.graph
        count = graph.node("Squeeze", [extent(graph, self.mask, 1, "counts")], "count")
        steps = graph.node("Range", [integer(graph, 0), count, integer(graph, 1)], "steps")
        below = graph.node("Unsqueeze", [steps, integers(graph, 1)], "steps.below")
        return graph.node("Sub", [steps, below], "offsets")

    @cached_property
    def _distance_bias(self) -> str:
        """float32 [1, heads, length, length]."""
        graph, longest = self.graph, self.longest
        table = self.weights.tensor(Part.DISTANCE_BIAS, None, (BUCKETS, self.design.heads))
        by_offset = graph.constant("distance_biases", array_of(table)[bucket_offsets(longest)].T)
        rows = graph.node("Add", [self._offsets, integer(graph, longest - 1)], "offsets.rows")
        grid = graph.node("Gather", [by_offset, rows], "distance_bias.grid", axis=1)
        return graph.node("Unsqueeze", [grid, integers(graph, 0)], "distance_bias")


def bucket_offsets(longest: int) -> Array:
    """The row of a table of biases for each distance from 1 - longest to longest - 1, as T5 and
    MPNet have them: of each direction 8 rows for distances below 8, and 8 for ranges that grow up
    to 128. https://arxiv.org/abs/1910.10683, section 2.1.
    """
    offsets = np.arange(1 - longest, longest)
    distance = np.abs(offsets)
    # In float32, as torch does: whole steps are at the edge of a range.
    steps = np.log(np.maximum(distance, 8).astype(np.float32) / np.float32(8))
    steps = steps / np.float32(np.log(16)) * np.float32(8)
    rows = np.where(distance < 8, distance, np.minimum(8 + steps.astype(np.int64), 15))
    return np.asarray(rows + BUCKETS // 2 * (offsets > 0))
