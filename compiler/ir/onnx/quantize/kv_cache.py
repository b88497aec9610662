"""A model that rounds the rows of its caches, as a library does that stores them in fewer bits:
what its reference runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from compiler.ir.onnx.model.kv_cache import extender
from compiler.ir.onnx.model.walking import walk
from compiler.ir.onnx.quantize.block_matmuls import opset_of
from compiler.ir.onnx.quantize.matmuls import recent
from relaxd.contract.bundle.byte_rows import LEAST, MOST
from relaxd.contract.options import CacheForm

_ELEMENTS = {CacheForm.FLOAT16: TensorProto.FLOAT16, CacheForm.BFLOAT16: TensorProto.BFLOAT16}
_AXES_ARE_INPUTS = 18
_MICROSOFT = "com.microsoft"


def round_caches(
    model: onnx.ModelProto,
    outputs: Iterable[str],
    consts: Mapping[str, Any],
    form: CacheForm,
    nudge: float = 0.0,
) -> onnx.ModelProto:
    """A copy of the model that rounds the rows of float32 caches to the form, those of the past and
    new ones, before anything reads them.

    outputs: what the caches come out as; nudge: by what share of themselves new rows change before,
    which moves a few numbers to their other neighbour. Of INT8, what is added to them of the
    greatest of their row: a factor changes scales alone.
    """
    if form is CacheForm.FLOAT16:
        made = onnx.ModelProto()
        made.CopyFrom(model)
    else:
        made = recent(model)
    tables = {
        weight.name: list(weight.dims)
        for graph in _graphs(made.graph)
        for weight in graph.initializer
    }
    opset = opset_of(made)
    wanted = {extender(made.graph, name, consts).output[0] for name in outputs}
    for graph in _graphs(made.graph):
        nodes: list[onnx.NodeProto] = []
        for node in graph.node:
            if node.output and node.output[0] in wanted:
                writer = _Writer(node, opset, _ELEMENTS.get(form), nudge, tables)
                _REWRITES[node.op_type](writer)
                nodes += writer.nodes
            nodes.append(node)
        del graph.node[:]
        graph.node.extend(nodes)
    return made


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph and those inside of it, at any depth."""
    yield graph
    for node in walk(graph.node):
        for attribute in node.attribute:
            # To touch a graph that is not there would make one.
            yield from (attribute.g,) if attribute.HasField("g") else attribute.graphs


@dataclass
class _Writer:
    """The nodes that come before one that extends caches, whose inputs change.

    opset: the model's; element: what rows are cast to, None where they become bytes; tables: the
    shapes of initializers by name.
    """

    node: onnx.NodeProto
    opset: int
    element: int | None
    nudge: float
    tables: Mapping[str, Sequence[int]]
    nodes: list[onnx.NodeProto] = field(default_factory=list)

    def put(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node; gives the name of its output."""
        (output,) = self.put_many(1, operator, *inputs, domain=domain, **attributes)
        return output

    def put_many(
        self, count: int, operator: str, *inputs: str, domain: str = "", **attributes: Any
    ) -> list[str]:
        """As `put`, for a node of several outputs."""
        name = f"{self.node.output[0]}__{len(self.nodes)}_{operator}"
        outputs = [f"{name}_{i}" for i in range(count)]
        made = helper.make_node(operator, list(inputs), outputs, domain=domain, **attributes)
        self.nodes.append(made)
        return outputs

    def constant(self, value: Any) -> str:
        """Add a constant."""
        return self.put("Constant", value=numpy_helper.from_array(np.asarray(value)))

    def attribute(self, name: str) -> int:
        """A whole number of the node, 0 where it is missing."""
        return next((a.i for a in self.node.attribute if a.name == name), 0)

    def input(self, index: int) -> str:
        """The name of an input, empty where it is missing."""
        return self.node.input[index] if index < len(self.node.input) else ""

    def size(self, name: str, axis: int) -> str:
        """An extent, int64 [1]."""
        return self.put("Gather", self.put("Shape", name), self.constant([axis]))

    def rounded(self, name: str, nudge: float = 0.0, heads: int = 0) -> str:
        """The value rounded to the form, as float32; nudge: as in `round_caches`; heads: of a value
        [batch, rows, heads * size], 0 of one whose heads have an axis.
        """
        if self.element is None:
            return self._in_bytes(name, nudge, heads)
        if nudge:
            name = self.put("Mul", name, self.constant(np.float32(1 + nudge)))
        narrow = self.put("Cast", name, to=self.element)
        return self.put("Cast", narrow, to=TensorProto.FLOAT)

    def round_past(self, *places: int) -> None:
        """Rounds these inputs."""
        for place in places:
            self.node.input[place] = self.rounded(self.node.input[place])

    def round_new(self, *places: int, heads: int = 0) -> None:
        """As `round_past`, of numbers that are nudged before; heads: as in `rounded`."""
        for place in places:
            self.node.input[place] = self.rounded(self.node.input[place], self.nudge, heads)

    def _in_bytes(self, name: str, nudge: float, heads: int) -> str:
        """As `rounded`, of bytes with a scale (`relaxd.contract.bundle.byte_rows`)."""
        if heads:
            # By constants: ONNX Runtime's Attention has to know the shapes of what it is given.
            name = self.put("Reshape", name, self.constant([0, 0, heads, -1]))
        infinity = self.constant(np.float32(np.inf))
        # A maximum may pass over NaN, so that it counts as infinity.
        sizes = self.put("Abs", name)
        sizes = self.put("Where", self.put("IsNaN", sizes), infinity, sizes)
        greatest = self._greatest(sizes)
        known = self.put("Less", greatest, infinity)
        enough = self.put("GreaterOrEqual", greatest, self.constant(np.float32(LEAST)))
        held, zero = self.put("And", known, enough), self.constant(np.float32(0))
        most = self.constant(np.float32(MOST))
        factor = self.put("Div", most, self.put("Where", held, greatest, most))
        number = self.put("Mul", self.put("Where", held, name, zero), factor)
        if nudge:
            number = self.put("Add", number, self.constant(np.float32(MOST * nudge)))
        scale = self.put("Div", self.put("Where", held, greatest, zero), most)
        scale = self.put("Where", known, scale, self.constant(np.float32(np.nan)))
        rounded = self.put("Mul", self.put("Round", number), scale)
        return self.put("Reshape", rounded, self.constant([0, 0, -1])) if heads else rounded

    def _greatest(self, name: str) -> str:
        """The greatest number along the last axis, which stays."""
        if self.opset < _AXES_ARE_INPUTS:
            return self.put("ReduceMax", name, axes=[-1], keepdims=1)
        return self.put("ReduceMax", name, self.constant([-1]), keepdims=1)


def _concat(w: _Writer) -> None:
    w.round_past(0)
    w.round_new(1)


def _attention(w: _Writer) -> None:
    w.round_past(4, 5)
    w.round_new(1, 2, heads=w.attribute("kv_num_heads"))


def _multi_head(w: _Writer) -> None:
    """The bias is added in front: keys and values are stored with it."""
    if bias := w.input(3):
        given = [w.input(place) for place in range(3)]
        sizes = w.put("Concat", *(w.size(name, 2) for name in given), axis=0)
        parts = w.put_many(3, "Split", bias, sizes, axis=0)
        for place, (name, part) in enumerate(zip(given, parts, strict=True)):
            w.node.input[place] = w.put("Add", name, part)
        w.node.input[3] = ""
    w.round_past(6, 7)
    w.round_new(1, 2, heads=w.attribute("num_heads"))


def _grouped(w: _Writer) -> None:
    """Heads are split and turned in front: keys are stored as they are turned."""
    heads, groups = w.attribute("num_heads"), w.attribute("kv_num_heads")
    if not w.input(1):
        unit = w.put("Div", w.size(w.input(0), 2), w.constant([heads + 2 * groups]))
        sizes = w.put("Mul", unit, w.constant([heads, groups, groups]))
        w.node.input[:3] = w.put_many(3, "Split", w.input(0), sizes, axis=2)
    if w.attribute("do_rotary"):
        places = _places(w)
        for place, count in ((0, heads), (1, groups)):
            w.node.input[place] = _turned(w, w.input(place), places, count)
        w.node.input[7] = w.node.input[8] = ""
        kept = [a for a in w.node.attribute if a.name not in ("do_rotary", "rotary_interleaved")]
        del w.node.attribute[:]
        w.node.attribute.extend(kept)
    w.round_past(3, 4)
    w.round_new(1, 2, heads=groups)


def _places(w: _Writer) -> str:
    """int64 [batch, rows]: the place of each new token in its entry; the first call puts all rows
    in, padding too.
    """
    rows = w.size(w.input(0), 1)
    total = w.put("Cast", w.input(6), to=TensorProto.INT64)
    first = w.put("Equal", w.put("Reshape", total, w.constant([1])), rows)
    last = w.put("Reshape", w.put("Cast", w.input(5), to=TensorProto.INT64), w.constant([-1, 1]))
    start = w.put("Sub", w.put("Add", last, w.constant([1])), rows)
    start = w.put("Where", first, w.constant([0]), start)
    count = w.put("Squeeze", rows, w.constant([0]))
    return w.put("Add", start, w.put("Range", w.constant(0), count, w.constant(1)))


def _turned(w: _Writer, name: str, places: str, heads: int) -> str:
    """The heads of [batch, rows, heads * size], turned by their places."""
    cos, sin = w.input(7), w.input(8)
    given = {"interleaved": w.attribute("rotary_interleaved"), "num_heads": heads}
    if cos in w.tables:
        # Fewer columns than half of a head's turn a part of it.
        given["rotary_embedding_dim"] = 2 * w.tables[cos][1]
    return w.put("RotaryEmbedding", name, places, cos, sin, domain=_MICROSOFT, **given)


_REWRITES: Mapping[str, Callable[[_Writer], None]] = {
    "Concat": _concat,
    "Attention": _attention,
    "MultiHeadAttention": _multi_head,
    "GroupQueryAttention": _grouped,
}
"""By the operator that extends a cache."""
