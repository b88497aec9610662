"""A model that quantizes the rows of its KV caches, as a library does that stores them so:
what its reference runs.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from compiler.ir.onnx.model.kv_cache import extender
from compiler.ir.onnx.model.opsets import opset_of
from compiler.ir.onnx.model.walking import walk
from compiler.quantize.onnx.matmuls import recent
from relaxd.contract.bundle.byte_rows import LEAST, MOST
from relaxd.contract.options import CacheForm

_ELEMENTS = {CacheForm.FLOAT16: TensorProto.FLOAT16, CacheForm.BFLOAT16: TensorProto.BFLOAT16}
_AXES_ARE_INPUTS = 18
_MICROSOFT = "com.microsoft"


def quantize_kv_caches(
    model: onnx.ModelProto,
    outputs: Iterable[str],
    consts: Mapping[str, Any],
    form: CacheForm,
    perturbation: float = 0.0,
) -> onnx.ModelProto:
    """A copy of the model that quantizes the rows of float32 caches to the form, those of the past
    and new ones, before anything reads them.

    outputs: the names of the extended caches; perturbation: the share of itself by which each new
    number changes before, which moves a few to their other neighbour. For INT8, what is added to
    it, as a share of its row's greatest: a factor would change scales alone.
    """
    if form is CacheForm.FLOAT16:
        result = onnx.ModelProto()
        result.CopyFrom(model)
    else:
        result = recent(model)
    tables = {
        weight.name: list(weight.dims)
        for graph in _graphs(result.graph)
        for weight in graph.initializer
    }
    opset = opset_of(result.opset_import)
    wanted = {extender(result.graph, name, consts).output[0] for name in outputs}
    for graph in _graphs(result.graph):
        nodes: list[onnx.NodeProto] = []
        for node in graph.node:
            if node.output and node.output[0] in wanted:
                writer = _Writer(node, opset, _ELEMENTS.get(form), perturbation, tables)
                _REWRITES[node.op_type](writer)
                nodes += writer.nodes
            nodes.append(node)
        del graph.node[:]
        graph.node.extend(nodes)
    return result


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
    perturbation: float
    tables: Mapping[str, Sequence[int]]
    nodes: list[onnx.NodeProto] = field(default_factory=list)

    def put(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node; gives the name of its output."""
        (output,) = self.put_many(1, operator, *inputs, domain=domain, **attributes)
        return output

    def put_many(
        self, count: int, operator: str, *inputs: str, domain: str = "", **attributes: Any
    ) -> list[str]:
        """Add a node of several outputs; gives their names."""
        name = f"{self.node.output[0]}__{len(self.nodes)}_{operator}"
        outputs = [f"{name}_{i}" for i in range(count)]
        node = helper.make_node(operator, list(inputs), outputs, domain=domain, **attributes)
        self.nodes.append(node)
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

    def quantize(self, name: str, perturbation: float = 0.0, heads: int = 0) -> str:
        """The value as the form stores it, in float32. perturbation: as in `quantize_kv_caches`;
        heads: of a value [batch, rows, heads * size], 0 of one whose heads have an axis.
        """
        if self.element is None:
            return self._in_bytes(name, perturbation, heads)
        if perturbation:
            name = self.put("Mul", name, self.constant(np.float32(1 + perturbation)))
        low = self.put("Cast", name, to=self.element)
        return self.put("Cast", low, to=TensorProto.FLOAT)

    def quantize_past(self, *indices: int) -> None:
        """Quantize these inputs."""
        for index in indices:
            self.node.input[index] = self.quantize(self.node.input[index])

    def quantize_new(self, *indices: int, heads: int = 0) -> None:
        """Quantize these inputs after perturbing them; heads: as in `quantize`."""
        for index in indices:
            self.node.input[index] = self.quantize(self.node.input[index], self.perturbation, heads)

    def _in_bytes(self, name: str, perturbation: float, heads: int) -> str:
        """`quantize` to int8 with a scale per row (`relaxd.contract.bundle.byte_rows`)."""
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
        scalable, zero = self.put("And", known, enough), self.constant(np.float32(0))
        most = self.constant(np.float32(MOST))
        factor = self.put("Div", most, self.put("Where", scalable, greatest, most))
        number = self.put("Mul", self.put("Where", scalable, name, zero), factor)
        if perturbation:
            number = self.put("Add", number, self.constant(np.float32(MOST * perturbation)))
        scale = self.put("Div", self.put("Where", scalable, greatest, zero), most)
        scale = self.put("Where", known, scale, self.constant(np.float32(np.nan)))
        values = self.put("Mul", self.put("Round", number), scale)
        return self.put("Reshape", values, self.constant([0, 0, -1])) if heads else values

    def _greatest(self, name: str) -> str:
        """The greatest number along the last axis, which stays."""
        if self.opset < _AXES_ARE_INPUTS:
            return self.put("ReduceMax", name, axes=[-1], keepdims=1)
        return self.put("ReduceMax", name, self.constant([-1]), keepdims=1)


def _concat(w: _Writer) -> None:
    w.quantize_past(0)
    w.quantize_new(1)


def _attention(w: _Writer) -> None:
    w.quantize_past(4, 5)
    w.quantize_new(1, 2, heads=w.attribute("kv_num_heads"))


def _multi_head(w: _Writer) -> None:
    """The bias is added in front: keys and values are stored with it."""
    if bias := w.input(3):
        projections = [w.input(index) for index in range(3)]
        sizes = w.put("Concat", *(w.size(name, 2) for name in projections), axis=0)
        parts = w.put_many(3, "Split", bias, sizes, axis=0)
        for index, (name, part) in enumerate(zip(projections, parts, strict=True)):
            w.node.input[index] = w.put("Add", name, part)
        w.node.input[3] = ""
    w.quantize_past(6, 7)
    w.quantize_new(1, 2, heads=w.attribute("num_heads"))


def _grouped(w: _Writer) -> None:
    """Heads are split and turned in front: keys are stored as they are turned."""
    heads, groups = w.attribute("num_heads"), w.attribute("kv_num_heads")
    if not w.input(1):
        unit = w.put("Div", w.size(w.input(0), 2), w.constant([heads + 2 * groups]))
        sizes = w.put("Mul", unit, w.constant([heads, groups, groups]))
        w.node.input[:3] = w.put_many(3, "Split", w.input(0), sizes, axis=2)
    if w.attribute("do_rotary"):
        positions = _positions(w)
        for index, count in ((0, heads), (1, groups)):
            w.node.input[index] = _turned(w, w.input(index), positions, count)
        w.node.input[7] = w.node.input[8] = ""
        others = [a for a in w.node.attribute if a.name not in ("do_rotary", "rotary_interleaved")]
        del w.node.attribute[:]
        w.node.attribute.extend(others)
    w.quantize_past(3, 4)
    w.quantize_new(1, 2, heads=groups)


def _positions(w: _Writer) -> str:
    """int64 [batch, rows]: the position of each new token in its entry; the first call puts all
    rows in, padding too.
    """
    rows = w.size(w.input(0), 1)
    total = w.put("Cast", w.input(6), to=TensorProto.INT64)
    first = w.put("Equal", w.put("Reshape", total, w.constant([1])), rows)
    last = w.put("Reshape", w.put("Cast", w.input(5), to=TensorProto.INT64), w.constant([-1, 1]))
    start = w.put("Sub", w.put("Add", last, w.constant([1])), rows)
    start = w.put("Where", first, w.constant([0]), start)
    count = w.put("Squeeze", rows, w.constant([0]))
    return w.put("Add", start, w.put("Range", w.constant(0), count, w.constant(1)))


def _turned(w: _Writer, name: str, positions: str, heads: int) -> str:
    """The heads of [batch, rows, heads * size], rotated by their positions."""
    cos, sin = w.input(7), w.input(8)
    attributes = {"interleaved": w.attribute("rotary_interleaved"), "num_heads": heads}
    if cos in w.tables:
        # Fewer columns than half of a head's turn a part of it.
        attributes["rotary_embedding_dim"] = 2 * w.tables[cos][1]
    return w.put("RotaryEmbedding", name, positions, cos, sin, domain=_MICROSOFT, **attributes)


_REWRITES: Mapping[str, Callable[[_Writer], None]] = {
    "Concat": _concat,
    "Attention": _attention,
    "MultiHeadAttention": _multi_head,
    "GroupQueryAttention": _grouped,
}
"""By the operator that extends a cache."""
