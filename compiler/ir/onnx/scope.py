"""A graph being read: names to values, nodes to handlers, functions and subgraphs to
nested scopes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from compiler.errors import ImportFailed, summary
from compiler.ir.caches import CacheUse
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.signature import check_rank
from compiler.ir.graph.values import Known, Tensor, Value
from compiler.ir.onnx import custom_operators, element_types, registry, small_types
from compiler.ir.onnx.functions import function_of
from compiler.ir.onnx.model.dtypes import CARRIED, name_of
from compiler.ir.onnx.model.lists import Content, Items, Stacked
from compiler.ir.onnx.model.opsets import opsets_of
from compiler.ir.onnx.node import Node, describe
from compiler.ir.shapes.index_bounds import Limit
from relaxd.contract.operators import CustomOperator


@dataclass
class Model:
    """Opsets by domain, model-local functions and notes for the manifest, which all scopes of a
    model share.

    assumed: which way an If goes, by label, where its branches cannot be joined (see `forks`);
    used: the names that a node or an output reads, None where that is not known; custom: the
    operators that C code computes, by domain and name.
    """

    opsets: dict[str, int]
    functions: dict[tuple[str, str, str], onnx.FunctionProto] = field(default_factory=dict)
    names: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    indexed: list[tuple[Scope, str, Limit]] = field(default_factory=list)
    caches: list[CacheUse] = field(default_factory=list)
    trace: list[dict[str, Any]] | None = None
    ranks: Mapping[str, int] = field(default_factory=dict)
    assumed: Mapping[str, bool] = field(default_factory=dict)
    used: Collection[str] | None = None
    custom: Mapping[tuple[str, str], CustomOperator] = field(default_factory=dict)

    def opset(self, domain: str) -> int:
        """The version of a domain's operators that the model imports, 1 where it does not say."""
        return self.opsets.get("" if domain == "ai.onnx" else domain, 1)


@dataclass
class Scope:
    """Values by name; a nested scope sees those of the scopes around it unless it is a
    function's.

    repeated: whether its nodes run once an iteration of a loop around them. caller, arguments: of a
    function's scope, the one that calls it, and the names there of its formal inputs.
    """

    builder: Builder
    model: Model
    outer: Scope | None = None
    values: dict[str, Content | None] = field(default_factory=dict)
    producers: dict[str, onnx.NodeProto] = field(default_factory=dict)
    attributes: dict[str, onnx.AttributeProto] = field(default_factory=dict)
    repeated: bool = False
    caller: Scope | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)

    def lookup(self, name: str) -> Content | None:
        """The value of a name, None for the empty name of an omitted input; KeyError where there is
        none.
        """
        if not name:
            return None
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        raise KeyError(name)

    def load_initializers(self, graph: onnx.GraphProto) -> None:
        """Read dense and sparse initialisers as known arrays."""
        for tensor in graph.initializer:
            self.values[tensor.name] = known_of(tensor)
        for sparse in graph.sparse_initializer:
            self.values[sparse.values.name] = dense_of(sparse)

    def run(self, nodes: Iterable[onnx.NodeProto]) -> None:
        """Import nodes in order."""
        for proto in nodes:
            self.producers.update(dict.fromkeys(proto.output, proto))
            self._bind(proto, self._import(proto))

    def _bind(self, proto: onnx.NodeProto, results: Sequence[Content | None]) -> None:
        for name, value in zip(proto.output, results, strict=False):
            if name:
                self.values[name] = self._named(name, value)

    def _named(self, name: str, value: Content | None) -> Content | None:
        """Apply the request's `shapes`: restate the value's extents as the dims it names, checked
        at run time.
        """
        axes = self.model.names.get(name)
        if axes is None or not isinstance(value, Tensor):
            return value
        check_rank(name, axes, value)
        return replace(self.builder.adopt(value.expr, axes), dtype=value.dtype)

    def _import(self, proto: onnx.NodeProto) -> Sequence[Content | None]:
        opset = self.model.opset(proto.domain)
        inputs = tuple(self._input(proto, name) for name in proto.input)
        attributes = {a.name: a for a in map(self._resolved, proto.attribute) if a is not None}
        node = Node(
            proto,
            inputs,
            {name: attribute_value(a) for name, a in attributes.items()},
            opset,
            self.builder,
            self,
        )
        handler = registry.find(proto.domain, proto.op_type, opset)
        with node.naming_errors():
            element_types.check(node)
            if handler is not None:
                outputs = small_types.run(handler, self.builder, node)
            else:
                outputs = self._call(proto, node, attributes)
        if self.model.trace is not None:
            self.model.trace.append(
                {"node": node.label, "op": node.op, "outputs": describe(outputs)}
            )
        return outputs

    def _input(self, proto: onnx.NodeProto, name: str) -> Content | None:
        try:
            return self.lookup(name)
        except KeyError:
            raise ImportFailed(
                f"the input {name!r} is produced nowhere before",
                reason="dangling",
                node=proto.name or proto.output[0],
                op=proto.op_type,
            ) from None

    def _resolved(self, attribute: onnx.AttributeProto) -> onnx.AttributeProto | None:
        """A function body's reference to an attribute of its call, replaced by that attribute; None
        where the call omits it.
        """
        if not attribute.ref_attr_name:
            return attribute
        attribute_of_call = self.attributes.get(attribute.ref_attr_name)
        if attribute_of_call is None:
            return None
        copy = onnx.AttributeProto()
        copy.CopyFrom(attribute_of_call)
        copy.name = attribute.name
        return copy

    def _call(
        self, proto: onnx.NodeProto, node: Node, attributes: dict[str, onnx.AttributeProto]
    ) -> Sequence[Content | None]:
        """Expand a model-local function, or the body that the ONNX schema gives for the
        operator.
        """
        body = function_of(self.model, _closed(proto, attributes), node.inputs)
        custom = self.model.custom.get((proto.domain, proto.op_type))
        if custom is not None and body is not None:
            defaults = {a.name: attribute_value(a) for a in body.attribute_proto}
            return custom_operators.compute(self.builder, node, custom, defaults)
        if body is None:
            why = registry.refusal(proto.domain, proto.op_type)
            node.fail(
                why or f"the operator {node.op} (opset {node.opset}) is not supported",
                reason="unsupported_op",
            )
        opsets = opsets_of(body.opset_import) or self.model.opsets
        defaults = {a.name: a for a in body.attribute_proto}
        inner = Scope(
            self.builder,
            Model(
                opsets,
                self.model.functions,
                indexed=self.model.indexed,
                assumed=self.model.assumed,
                custom=self.model.custom,
            ),
            attributes={**defaults, **attributes},
            repeated=self.repeated,
            caller=self,
            arguments=dict(zip(body.input, proto.input, strict=False)),
        )
        inner.values.update(zip(body.input, node.inputs, strict=False))
        inner.values.update(dict.fromkeys(body.input[len(node.inputs) :]))
        inner.run(body.node)
        return [
            inner.lookup(name) if node.wants(index) else None
            for index, name in enumerate(body.output)
        ]

    def inline(
        self, nodes: Sequence[onnx.NodeProto], outputs: Sequence[str]
    ) -> list[Content | None]:
        """Import nodes that stand for one of this scope; gives the values of these names."""
        inner = Scope(
            self.builder, self.model, self, attributes=self.attributes, repeated=self.repeated
        )
        inner.run(nodes)
        return [inner.lookup(name) for name in outputs]

    def subgraph(
        self, graph: onnx.GraphProto, inputs: Sequence[Content | None] = ()
    ) -> list[Value]:
        """Import a graph whose outputs are tensors; gives their values."""
        contents = self.contents(graph, inputs)
        for content, output in zip(contents, graph.output, strict=True):
            if isinstance(content, Items | Stacked):
                raise ImportFailed(
                    f"{output.name!r} is a sequence where a tensor belongs", reason="sequence"
                )
        return [content for content in contents if isinstance(content, Known | Tensor)]

    def contents(
        self, graph: onnx.GraphProto, inputs: Sequence[Content | None] = ()
    ) -> list[Content | None]:
        """Import a subgraph in the builder's current block with its formal inputs bound; gives its
        outputs.
        """
        repeated = self.repeated or bool(graph.input)
        inner = Scope(self.builder, self.model, self, attributes=self.attributes, repeated=repeated)
        inner.load_initializers(graph)
        inner.values.update(
            {
                formal.name: small_types.entering(formal, value)
                for formal, value in zip(graph.input, inputs, strict=False)
            }
        )
        inner.run(graph.node)
        return [small_types.leaving(output, inner.lookup(output.name)) for output in graph.output]


def _closed(proto: onnx.NodeProto, attributes: Mapping[str, onnx.AttributeProto]) -> onnx.NodeProto:
    """The node with its references to attributes of the function around it replaced by their
    values.
    """
    if not any(attribute.ref_attr_name for attribute in proto.attribute):
        return proto
    copy = onnx.NodeProto()
    copy.CopyFrom(proto)
    del copy.attribute[:]
    copy.attribute.extend(attributes.values())
    return copy


def known_of(tensor: onnx.TensorProto) -> Known:
    """A TensorProto as a known array; raises ImportFailed for an element type we do not carry, and
    for dims that are not those of the data.
    """
    if tensor.data_type not in CARRIED:
        raise ImportFailed(
            f"the constant {tensor.name!r} has element type "
            f"{name_of(tensor.data_type)}, which is not supported",
            reason="dtype",
        )
    return Known(_array_of(tensor), CARRIED[tensor.data_type])


def _array_of(tensor: onnx.TensorProto) -> np.ndarray[Any, Any]:
    try:
        if any(dim < 0 for dim in tensor.dims):
            raise ValueError("a dim is negative")
        return np.asarray(numpy_helper.to_array(tensor))
    except (ValueError, TypeError) as error:
        raise ImportFailed(
            f"the constant {tensor.name!r} of the dims {list(tensor.dims)[:10]} cannot be read: "
            f"{summary(error)}",
            reason="malformed_tensor",
            field="model",
            hint="the file is damaged: export it again",
        ) from error


def dense_of(sparse: onnx.SparseTensorProto) -> Known:
    """A sparse initialiser as a dense known array."""
    values, indices = known_of(sparse.values), _array_of(sparse.indices)
    shape = tuple(sparse.dims)
    dense = np.zeros(shape, values.data.dtype)
    position = np.unravel_index(indices, shape) if indices.ndim == 1 else tuple(indices.T)
    dense[position] = values.data
    return Known(dense, values.dtype)


def attribute_value(attribute: onnx.AttributeProto) -> Any:
    """An attribute as a Python value: bytes become str, tensors stay TensorProto, graphs
    GraphProto.
    """
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if attribute.type == onnx.AttributeProto.STRINGS:
        return [item.decode("utf-8", "replace") for item in value]
    if attribute.type in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS):
        return list(value)
    return value
