"""A graph being read: torch's values to ours, nodes to handlers, blocks to nested scopes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from tvm.ir import Expr as PrimExpr

from compiler.ir.aten import registry, support
from compiler.ir.aten.memory import DictBox, ListBox, Memory, Parts, Ref, Slot, Stack
from compiler.ir.aten.node import Node, Spectrum, describe
from compiler.ir.aten.structure import Number, kind_of
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.signature import check_rank
from compiler.ir.graph.values import Known, Tensor, Value
from compiler.ir.ops.pointwise import broadcast
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.index_bounds import Limit


@dataclass
class Model:
    """Graph, names for shapes, indices and their limits, a trace of nodes and attributes by path,
    which all scopes of a model share.

    assumed: which way a prim::If goes, by label, where its blocks cannot be joined (see `forks`).
    """

    graph: Any
    names: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    indexed: list[tuple[Any, Limit]] = field(default_factory=list)
    trace: list[dict[str, Any]] | None = None
    slots: dict[str, Slot] = field(default_factory=dict)
    assumed: Mapping[str, bool] = field(default_factory=dict)


@dataclass
class Scope:
    """Values by torch's name for them, unique in a graph; a nested scope sees those around it."""

    builder: Builder
    memory: Memory
    model: Model
    outer: Scope | None = None
    values: dict[str, Any] = field(default_factory=dict)

    def lookup(self, raw: Any) -> Any:
        """The value that stands for one of torch."""
        name = raw.debugName()
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        raise KeyError(name)

    def bind(self, raw: Any, value: Any) -> None:
        """Make a torch value stand for something, its shape restated where the request names it."""
        axes = self.model.names.get(raw.debugName())
        if axes is not None and isinstance(value, Ref):
            value = self._named(raw.debugName(), value, axes)
        self.values[raw.debugName()] = value

    def _named(self, name: str, ref: Ref, axes: Sequence[Any]) -> Ref:
        value = self.memory.read(ref)
        if not isinstance(value, Tensor):
            return ref
        check_rank(name, axes, value)
        restated = self.builder.adopt(value.expr, axes)
        return self.memory.view(ref, restated, lambda b, v: b.adopt(b.tensor(v).expr, axes))

    def inner(self) -> Self:
        """A scope for a block."""
        return type(self)(self.builder, self.memory, self.model, self)

    def run(self, block: Any) -> list[Any]:
        """Import a block's (or graph's) nodes in order; gives what it returns."""
        for raw in block.nodes():
            self._node(raw)
        return [self.lookup(output) for output in block.outputs()]

    def _node(self, raw: Any) -> None:
        """Import one node of the graph's format."""
        raise NotImplementedError

    def _import(self, raw: Any, names: tuple[str, ...]) -> None:
        args = tuple(self.lookup(item) for item in raw.inputs())
        node = Node(raw, raw.kind(), args, names, self)
        with node.naming_errors():
            self._results(raw, self._call(node))

    def _call(self, node: Node) -> Any:
        kind = node.kind
        if kind in registry.CONTROL:
            return registry.CONTROL[kind](self.builder, node)
        if node.args and isinstance(node.args[0], Spectrum) and registry.is_of_shapes(kind):
            return self._call_by_parts(node, node.args[0])
        base = registry.functional_form(kind)
        of_tensors = any(isinstance(item, (Ref, Spectrum)) for item in node.args)
        if kind in registry.PLAIN and not (of_tensors and self._of_tensors(kind)):
            return to_schema_type(node, registry.PLAIN[kind](self.builder, node))
        if kind in registry.VIEW:
            return self._view(node)
        if kind in registry.TENSOR:
            return registry.TENSOR[kind](self.builder, node)
        if base in registry.TENSOR:
            return self._write_inplace(node, registry.TENSOR[base](self.builder, node))
        if base in registry.VIEW:
            node.fail(
                "changing a tensor's shape in place is not supported",
                reason="unsupported_mutation",
                hint="use the operator without the underscore",
            )
        support.refuse(self.model.graph, node.label, kind)

    def _call_by_parts(self, node: Node, spectrum: Spectrum) -> Any:
        """The operator of both parts of a complex tensor; what it says of a shape is one answer."""
        results = [
            self._call(replace(node, args=(self.memory.ref(part), *node.args[1:])))
            for part in (spectrum.real, spectrum.imaginary)
        ]
        values = [self.memory.read(item) if isinstance(item, Ref) else item for item in results]
        if all(isinstance(value, (Known, Tensor)) for value in values):
            return Spectrum(*values)
        return values[0]

    @staticmethod
    def _of_tensors(kind: str) -> bool:
        """True if an operator also has a form for tensors."""
        base = registry.functional_form(kind)
        return any(
            name in table for name in (kind, base) for table in (registry.VIEW, registry.TENSOR)
        )

    def _view(self, node: Node) -> Ref:
        source = node.ref(node.names[0])
        step = registry.VIEW[node.kind](self.builder, node)
        return self.memory.view(
            source,
            step(self.builder, self.memory.read(source)),
            step,
            node.kind in registry.OVERLAPPING,
        )

    def _write_inplace(self, node: Node, result: Any) -> Ref:
        """The result of the operator without the underscore, written over its first argument in
        that one's dtype.
        """
        target = node.ref(node.names[0])
        self.overwrite(target, self.memory.read(result) if isinstance(result, Ref) else result)
        return target

    def overwrite(self, target: Ref, value: Value) -> None:
        """Write a value over a tensor, broadcast to its shape and cast to its dtype."""
        old = self.memory.read(target)
        shaped = broadcast.expand(self.builder, ew.cast(self.builder, value, old.dtype), old.shape)
        self.memory.store(target, shaped)

    def _results(self, raw: Any, returned: Any) -> None:
        outputs = list(raw.outputs())
        if not outputs:
            return
        values = [returned] if len(outputs) == 1 else list(returned)
        for output, result in zip(outputs, values, strict=True):
            self.bind(output, self.wrap(result))
        if self.model.trace is not None:
            self.model.trace.append(
                {
                    "node": f"%{outputs[0].debugName()}",
                    "op": raw.kind(),
                    "outputs": [describe(self.lookup(o)) for o in outputs],
                }
            )

    def wrap(self, result: Any) -> Any:
        """A handler's result as a value of the scope: tensors get a cell of their own, lists and
        dicts a box.
        """
        if isinstance(result, (Known, Tensor)):
            return self.memory.ref(result)
        if isinstance(result, list):
            return self.memory.cell(tuple(self.wrap(item) for item in result), ListBox)
        if isinstance(result, tuple):
            return tuple(self.wrap(item) for item in result)
        if isinstance(result, dict):
            return self.memory.cell({key: self.wrap(item) for key, item in result.items()}, DictBox)
        if isinstance(result, (Stack, Parts)):
            return self.memory.cell(result, ListBox)
        return result


def to_schema_type(node: Node, number: Any) -> Any:
    """A number of the type that the node's schema gives it: a power of integers, say, is
    a float.
    """
    outputs = list(node.raw.outputs())
    if (
        len(outputs) != 1
        or outputs[0].type().kind() != "FloatType"
        or kind_of(number) is not Number.INT
    ):
        return number
    return ex.prim(number, "float64") if isinstance(number, PrimExpr) else float(number)
