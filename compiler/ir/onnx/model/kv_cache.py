"""Finds the caches of a language model, and turns them into buffers that the library's caller owns.

A cache is an input that one node extends by new rows, and whose extension is an output.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx
from tvm import relax

from compiler.errors import ImportFailed
from compiler.ir.caches import CacheUse
from compiler.ir.graph.buffers import AXIS, Buffer
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Tensor, Value
from compiler.ir.imported import CallerState
from compiler.ir.onnx.model.lists import Content
from compiler.ir.onnx.model.walking import walk
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.symbols import axis_of, extent_of
from relaxd.contract.bundle.byte_rows import SCALE_BYTES
from relaxd.contract.bundle.state import Cache, Part, State
from relaxd.contract.dims.axes import Axis
from relaxd.contract.dims.dims import Dim
from relaxd.contract.dims.names import quote_name
from relaxd.contract.dims.tensors import TensorSpec
from relaxd.contract.options import CacheForm
from relaxd.contract.request import CompileRequest

CAPACITY = "capacity"
_FILLED = {"GroupQueryAttention": {1: 3, 2: 4}}
_GROWN = {
    "Attention": {1: 4, 2: 5},
    "MultiHeadAttention": {1: 6, 2: 7},
    "Concat": {0: 0},
    "Identity": {0: 0},
}
"""By operator, the input that an output extends."""

_HINT = "compile it with state=passed, which leaves caches as inputs and outputs"


@dataclass(frozen=True)
class Lifting:
    """Inputs with in-place caches: `specs` are those of the library, `original` the model's.

    declared: the dims that the request declares.
    ragged: its attention fills each entry of a batch to a length of its own, so that the past's
    rows are not counted.
    """

    original: tuple[TensorSpec, ...]
    specs: tuple[TensorSpec, ...]
    request: CompileRequest
    caches: tuple[Cache, ...]
    past: Dim
    ragged: bool
    declared: frozenset[str]

    def own(self, builder: Builder, values: dict[str, Content | None]) -> None:
        """Makes buffers of the caches among the values; a cache that grows is seen up to its
        past, and rows as long as the model's.
        """
        table = {spec.name: spec for spec in self.original}
        for cache in self.caches:
            buffer, original = values[cache.input], table[cache.input]
            assert isinstance(buffer, Tensor)
            seen = buffer if self.ragged else self._past(builder, buffer)
            in_bytes = buffer.dtype == CacheForm.INT8 and original.dtype == "float32"
            if in_bytes:
                size = extent_of(original.shape[-1], lambda name: builder.facts.dim(name))
                seen = replace(seen, shape=(*seen.shape[:-1], size))
            values[cache.input] = seen
            builder.buffers[seen.expr] = Buffer(cache.input, buffer, original.dtype, bytes=in_bytes)

    def _past(self, b: Builder, cache: Tensor) -> Tensor:
        rows = b.facts.dim(self.past.name)
        b.require(ex.less_equal(rows, cache.shape[AXIS]), "a cache holds more rows than it has")
        view = relax.op.strided_slice(
            cache.expr, [AXIS], [ex.prim(0)], [ex.prim(rows)], assume_inbound=True
        )
        return b.emit(view, [*cache.shape[:AXIS], rows, cache.shape[AXIS + 1]])

    def outputs(
        self, builder: Builder, values: Iterable[tuple[str, Value]]
    ) -> list[tuple[str, Value]]:
        """The outputs that are no caches; raises ImportFailed where one is no extended cache."""
        presents = {cache.output: cache.input for cache in self.caches}
        extended = {buffer.name: buffer.present for buffer in builder.buffers.values()}
        others = []
        for name, value in values:
            if name not in presents:
                others.append((name, value))
                continue
            present = extended[presents[name]]
            if present is None or not isinstance(value, Tensor) or value.expr is not present.expr:
                raise _refused(f"{name!r} is not the cache {presents[name]!r} with new rows")
        return others

    def describe(
        self, builder: Builder, uses: Sequence[CacheUse], outputs: Sequence[TensorSpec]
    ) -> CallerState:
        """Describe the caches for the manifest and verification; raises ImportFailed where the new
        rows have no dim of their own.

        uses, outputs: the library's.
        """
        use = uses[0] if uses else self._growing(builder)
        if use.rows.symbol is None and use.rows.size != 1:
            raise _refused("the number of new tokens is neither a dim of its own nor 1")
        self._bound(builder, use)
        use = replace(
            use, room=Axis.of_dim(self.past.name), parts={**self._named(use), **use.parts}
        )
        parts = dict(use.parts)
        if not self.ragged:
            parts[_counter(self.past.name)] = Part.PAST
        form = self.request.options.cache
        state = State(
            self.caches,
            CAPACITY,
            str(use.rows),
            self.past.name,
            self.ragged,
            parts,
            None if form is CacheForm.FLOAT32 else form,
        )
        presents = [self._present(cache, use) for cache in self.caches]
        return CallerState(state, self.original, (*outputs, *presents), self.past, (use,))

    def _bound(self, b: Builder, use: CacheUse) -> None:
        """Limits a capacity that nobody declared to the most rows that a call may leave."""
        if CAPACITY in self.declared:
            return
        dims = {**b.facts.dims, self.past.name: self.past}
        most = _most(use.total, dims) if self.ragged else None
        if most is None:
            past, rows = self.past.highest, _most(use.rows, dims)
            most = None if past is None or rows is None else past + rows
        if most is not None:
            b.facts.limit(CAPACITY, most)

    def _present(self, cache: Cache, use: CacheUse) -> TensorSpec:
        """The output that the model gives."""
        spec = next(spec for spec in self.original if spec.name == cache.input)
        past = quote_name(self.past.name)
        rows = Axis(f"{past} + {use.rows}")
        if self.ragged:
            rows = Axis(f"max({past}, {use.total or rows})")
        shape = (*spec.shape[:AXIS], rows, *spec.shape[AXIS + 1 :])
        return replace(spec, name=cache.output, shape=shape)

    def _growing(self, b: Builder) -> CacheUse:
        """The use of caches that grow: as many rows more as there are new tokens."""
        buffer = next(iter(b.buffers.values()))
        assert buffer.present is not None
        past = b.facts.dim(self.past.name)
        entries, rows = (
            axis_of(extent) or Axis("1")
            for extent in (
                buffer.storage.shape[0],
                b.facts.simplify(ex.sub(buffer.present.shape[AXIS], past)),
            )
        )
        masks = [spec.shape[1] for spec in self.original if _is_mask(spec)]
        return CacheUse(entries, rows, Axis.of_dim(self.past.name), masks[0] if masks else None, {})

    def _named(self, use: CacheUse) -> dict[str, Part]:
        """Inputs that follow every exporter's names, where an operator does not say what they
        are.
        """
        parts = {}
        for spec in self.original:
            if spec.name == "position_ids" and self._sizes(spec)[1:] == [use.rows]:
                parts[spec.name] = Part.POSITIONS
            if _is_mask(spec):
                parts[spec.name] = Part.MASK
        return parts

    def _sizes(self, spec: TensorSpec) -> list[Axis]:
        """The shape, with numbers for dims that the request fixes."""
        fixed = {dim.name: dim.min for dim in self.request.dims if dim.min == dim.max}
        return [
            Axis(str(fixed[axis.symbol])) if axis.symbol in fixed else axis for axis in spec.shape
        ]


def _is_mask(spec: TensorSpec) -> bool:
    return spec.name == "attention_mask" and len(spec.shape) == AXIS


def plan_kv_caches(
    graph: onnx.GraphProto, specs: Sequence[TensorSpec], request: CompileRequest
) -> Lifting:
    """The graph's caches as buffers; raises ImportFailed for a model that has none, or has some
    that no buffer can stand for.
    """
    table = {spec.name: spec for spec in specs}
    pairs = list(_pairs(graph, table, dict(request.consts)))
    if not pairs:
        raise _without_caches(graph, table)
    kinds = {filled for _, filled in pairs}
    axes = {table[cache.input].shape[AXIS] for cache, _ in pairs}
    (axis, *others) = axes
    if others or axis.symbol is None or len(kinds) > 1:
        raise _refused("the caches do not all hold the same number of rows, which is a dim")
    known = {cache.input for cache, _ in pairs}
    for spec in specs:
        if spec.name not in known and spec.shape[AXIS : AXIS + 1] == (axis,):
            raise _refused(f"{spec.name!r} has as many rows, and no output is that with more")
    past = request.dim_table.get(axis.symbol, Dim(axis.symbol, min=0))
    if any(CAPACITY in axis.dims for spec in specs for axis in spec.shape):
        raise _refused(f"an input has an axis {CAPACITY!r} already")
    (ragged,) = kinds
    form = request.options.cache
    if form is not CacheForm.FLOAT32 and all(table[name].dtype != "float32" for name in known):
        raise _unroundable(
            f"the model's caches are {table[min(known)].dtype}: only those of float32 are stored "
            "in fewer bits",
            "leave the option out: in-place caches have the model's dtype",
        )
    changed = [_with_room(spec, request) if spec.name in known else spec for spec in specs]
    if not ragged:
        changed.append(TensorSpec(_counter(past.name), "int8", (Axis.of_dim(past.name),)))
    return Lifting(
        tuple(specs),
        tuple(changed),
        _request(request, past, ragged),
        tuple(cache for cache, _ in pairs),
        past,
        ragged,
        frozenset(request.dim_table),
    )


def _without_caches(graph: onnx.GraphProto, inputs: Mapping[str, TensorSpec]) -> ImportFailed:
    for node in graph.node:
        if node.op_type == "If" and node.input[0] in inputs:
            (name, *_) = node.input
            return _refused(
                f"each run chooses by the input {name!r} what its outputs come from",
                f"choose the branch that reads the past, as by --const {name}=1",
            )
    return _refused("the model has no caches: inputs that one node extends to outputs")


def _most(axis: Axis | None, dims: Mapping[str, Dim]) -> int | None:
    """The greatest size of an axis that is a bare dim or fixed, None where it has none."""
    if axis is None:
        return None
    return dims[axis.symbol].highest if axis.symbol else axis.size


def _pairs(
    graph: onnx.GraphProto, inputs: dict[str, TensorSpec], consts: Mapping[str, Any]
) -> Iterator[tuple[Cache, bool]]:
    """Caches, and whether the node fills each entry to a length of its own."""
    level = _Level.of(graph)
    readers = Counter(
        name for node in walk(graph.node) if node.op_type != "Shape" for name in set(node.input)
    )
    for output in graph.output:
        name, filled, extended = output.name, False, False
        for node, extends in _extensions(level, name, consts):
            filled = filled or node.op_type in _FILLED
            extended = extended or node.op_type != "Identity"
            name = node.input[extends]
        is_cache = extended and name in inputs and readers[name] == 1
        if is_cache and len(inputs[name].shape) == AXIS + 2:
            yield Cache(name, output.name), filled


def extender(graph: onnx.GraphProto, output: str, consts: Mapping[str, Any]) -> onnx.NodeProto:
    """The node that extends the cache which comes out as `output`; of an If whose condition is
    among `consts`, in the branch that it takes.
    """
    extending = (node for node, _ in _extensions(_Level.of(graph), output, consts))
    return next(node for node in extending if node.op_type != "Identity")


@dataclass(frozen=True)
class _Level:
    """The nodes of a graph by what they make, None for weights; outer: those around a branch."""

    producers: Mapping[str, onnx.NodeProto | None]
    outer: _Level | None = None

    @classmethod
    def of(cls, graph: onnx.GraphProto, outer: _Level | None = None) -> _Level:
        weights = dict.fromkeys(weight.name for weight in graph.initializer)
        return cls(weights | {name: node for node in graph.node for name in node.output}, outer)

    def maker(self, name: str) -> tuple[_Level, onnx.NodeProto] | None:
        """The node that makes a value, and where it stands; None for inputs and weights."""
        if name not in self.producers:
            return self.outer.maker(name) if self.outer else None
        node = self.producers[name]
        return node and (self, node)


def _extensions(
    level: _Level, name: str, consts: Mapping[str, Any]
) -> Iterator[tuple[onnx.NodeProto, int]]:
    """The nodes that extend what becomes the value `name`, from the last on, and which of their
    inputs each extends. Of an If whose condition the request fixes, the branch that it takes.
    """
    while producer := level.maker(name):
        level, node = producer
        output = list(node.output).index(name)
        if node.op_type == "If" and node.input[0] in consts:
            wanted = "then_branch" if consts[node.input[0]] else "else_branch"
            (branch,) = [attribute.g for attribute in node.attribute if attribute.name == wanted]
            level, name = _Level.of(branch, level), branch.output[output].name
            continue
        extends = (_FILLED.get(node.op_type) or _GROWN.get(node.op_type) or {}).get(output)
        if extends is None or extends >= len(node.input):
            return
        yield node, extends
        name = node.input[extends]


def _with_room(spec: TensorSpec, request: CompileRequest) -> TensorSpec:
    """A cache with room for rows, which are stored in the request's form where the model's are
    float32.
    """
    form, size = request.options.cache, spec.shape[-1]
    dtype = form.value if spec.dtype == "float32" else spec.dtype
    if form is CacheForm.INT8 and dtype == form:
        dim = request.dim_table.get(size.symbol or "")
        if size.size is None and (dim is None or dim.min != dim.max):
            raise _unroundable(
                f"the rows of {spec.name!r} have no fixed size, behind which a scale could stand",
                "leave the option out, or take float16 for it",
            )
        size = Axis(
            f"{size} + {SCALE_BYTES}" if size.size is None else str(size.size + SCALE_BYTES)
        )
    return replace(spec, shape=(*spec.shape[:AXIS], Axis(CAPACITY), size), dtype=dtype)


def _counter(past: str) -> str:
    """The input whose length is the number of rows that the caches hold."""
    return f"{past}.rows"


def _request(request: CompileRequest, past: Dim, ragged: bool) -> CompileRequest:
    """The request with a dim for the capacity."""
    dims = [dim for dim in request.dims if not (ragged and dim.name == past.name)]
    declared = {dim.name for dim in dims}
    if CAPACITY not in declared:
        dims.append(Dim(CAPACITY, min=1))
    if not ragged and past.name not in declared:
        dims.append(past)
    return replace(request, dims=tuple(sorted(dims)))


def _unroundable(why: str, hint: str) -> ImportFailed:
    return ImportFailed(why, reason="cache", field="options.cache", hint=hint)


def _refused(why: str, hint: str = _HINT) -> ImportFailed:
    return ImportFailed(
        f"the KV caches cannot be in-place: {why}",
        reason="state",
        field="options.state",
        hint=hint,
    )
