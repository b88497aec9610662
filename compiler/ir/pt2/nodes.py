"""A program's nodes as the graph that the operators read: arguments by their schemas' names with
defaults filled in, numbers of torch's schema as TorchScript has them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from compiler.errors import ImportFailed
from compiler.ir.aten.dtypes import NUMBERS
from compiler.ir.pt2 import graph, signatures
from compiler.ir.pt2.archive import refuse_malformed, refusing_other_kinds
from compiler.ir.pt2.graph import Block, Node, Type, Value
from compiler.ir.pt2.program import Program, Stored
from compiler.ir.pt2.tensors import DTYPES

_OPS = "torch.ops."
_PYTHON = {
    **{
        name: f"aten::{name}"
        for name in ("add", "sub", "mul", "floordiv", "neg", "pow", "eq", "ne", "lt", "le", "gt",
                     "ge", "abs", "and_", "or_")
    },
    "mod": "aten::remainder", "truediv": "aten::div", "and_": "aten::__and__",
    "or_": "aten::__or__", "not_": "aten::__not__", "sym_not": "aten::__not__",
    "sym_max": "prim::max", "sym_min": "prim::min", "sym_float": "aten::Float",
    "sym_int": "aten::Int", "sym_sqrt": "aten::sqrt", "_sym_sqrt": "aten::sqrt",
    "trunc": "aten::Int", "floor": "aten::floor", "ceil": "aten::ceil",
}  # fmt: skip
"""Functions of Python and torch on sizes, as the operators on plain numbers are called."""
_SYMBOLIC = {"aten::sym_size": "aten::size", "aten::sym_numel": "aten::numel"}
_KINDS = {
    "as_sym_int": Type("IntType"), "as_sym_float": Type("FloatType"), "as_sym_bool":
    Type("BoolType"),
}  # fmt: skip
_LISTS = ("as_tensors", "as_optional_tensors", "as_sym_ints", "as_sym_floats", "as_sym_bools")
_PLAIN_LISTS = ("as_ints", "as_floats", "as_bools", "as_strings")
_INFINITE = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}


ENDLESS = 1 << 62
"""The trip count of a loop that its condition alone ends; that of `aten.operators.looping` comes
with TVM, which reading a file does without.
"""
RETURN = Node("prim::Return")
"""Reads the results of a block."""


@dataclass
class Reading:
    """A graph being read: its values by name, which those of an inner graph are prefixed for."""

    values: dict[str, Value] = field(default_factory=dict)
    prefix: str = ""

    def make(self, name: Any, kind: Type = Type("TensorType")) -> Value:
        """A new value of the graph."""
        if not isinstance(name, str) or name in self.values:
            refuse_malformed(f"two values are called {str(name)[:80]!r}")
        self.values[name] = graph.parameter(self.prefix + name, kind)
        return self.values[name]

    def lookup(self, name: Any) -> Value:
        """Return a value that an earlier node made."""
        if name not in self.values:
            refuse_malformed(f"the value {str(name)[:80]!r} is read before any node makes it")
        return self.values[name]

    def argument(self, argument: Mapping[str, Any]) -> Value:
        """An argument of a node, or a result of a graph."""
        ((kind, content),) = argument.items()
        if kind in _LISTS:
            return graph.list_of([self._item(item) for item in content])
        if kind in ("as_nested_tensors", "as_int_lists", "as_float_lists"):
            return graph.list_of(
                [graph.list_of([self._item(item) for item in items]) for items in content]
            )
        if kind in _PLAIN_LISTS:
            return graph.list_of([graph.literal(number_of(item)) for item in content])
        if kind == "as_tensor":
            return self.lookup(content["name"])
        if kind in _KINDS:
            return self._item(content)
        if kind == "as_optional_tensor":
            return self._item(content)
        return graph.literal(_literal(kind, content))

    def _item(self, item: Any) -> Value:
        """One item of a list, which may be a name, a number or nothing."""
        if not isinstance(item, dict):
            return graph.literal(number_of(item))
        if "name" in item or "as_name" in item:
            return self.lookup(item.get("name", item.get("as_name")))
        ((kind, content),) = item.items()
        if kind == "as_tensor":
            return self.lookup(content["name"])
        return graph.literal(None if kind == "as_none" else number_of(content))

    def run(self, document: Mapping[str, Any]) -> Block:
        """The nodes of a graph whose inputs have their values, and what it returns."""
        block = Block()
        for entry in document["nodes"]:
            for node in self._nodes(entry):
                for value in node.arguments:
                    for part in (value, *value.producer.arguments):
                        part.users.append(node)
                block.members.append(node)
        return_values(block, [self.argument(output) for output in document["outputs"]])
        return block

    def _nodes(self, entry: Mapping[str, Any]) -> list[Node]:
        target = str(entry["target"])
        trace = str(entry.get("metadata", {}).get("stack_trace", ""))[:20_000]
        if target in _HIGHER_ORDER:
            return _HIGHER_ORDER[target](self, entry, trace)
        kind, overload = operator_of(target)
        names: tuple[str, ...] = ()
        arguments: list[Value] = []
        # A node that is going to be refused may have arguments of any kind.
        if signatures.why_not(kind) is None:
            names, arguments = self._arguments(f"{kind}.{overload}", entry["inputs"])
        node = Node(_SYMBOLIC.get(kind, kind), names, arguments, target=target, trace=trace)
        self._results(node, entry)
        return [node]

    def _results(self, node: Node, entry: Mapping[str, Any]) -> None:
        for output in entry["outputs"]:
            ((kind, content),) = output.items()
            if kind in ("as_tensor", "as_optional_tensor") and "name" in content:
                result = self.make(content["name"])
            elif kind in _KINDS and "as_name" in content:
                result = self.make(content["as_name"], _KINDS[kind])
            elif kind in _LISTS:
                result = Value(str(entry.get("name")), node, Type("ListType"))
                result.items = [
                    self.make(item.get("name", item.get("as_name"))) for item in content
                ]
                for item in result.items:
                    item.producer = node
            else:
                node.results.append(graph.literal(None))
                continue
            result.producer = node
            node.results.append(result)

    def _arguments(
        self, signature: str, inputs: list[Mapping[str, Any]]
    ) -> tuple[tuple[str, ...], list[Value]]:
        """Names and values of every argument of the schema; of an operator that has none in the
        table, those that the call gives.
        """
        call = {str(item["name"]): item["arg"] for item in inputs}
        declared = signatures.arguments_of(signature)
        if declared is None or len(call) != len(inputs):
            names = tuple(str(item["name"]) for item in inputs)
            return names, [self.argument(item["arg"]) for item in inputs]
        for name in call:
            if name not in dict(declared):
                refuse_malformed(f"{signature} has no argument {name[:80]!r}")
        arguments = []
        for name, default in declared:
            if name in call:
                arguments.append(self.argument(call[name]))
            elif default is signatures.MISSING:
                refuse_malformed(f"a call of {signature} lacks the argument {name!r}")
            else:
                arguments.append(_default(default))
        return tuple(name for name, _ in declared), arguments

    def _branch(self, entry: Mapping[str, Any], trace: str) -> list[Node]:
        """torch.cond as a branch on a truth value; its graphs read what they are given."""
        predicate, then, orelse, operands = (item["arg"] for item in entry["inputs"])
        nodes, condition = self._truth(self.argument(predicate), entry, "condition")
        actuals = self._items(operands)
        node = Node("prim::If", ("",), [condition], target=entry["target"], trace=trace)
        node.inner += [self._inner(way, actuals) for way in (then, orelse)]
        self._results(node, entry)
        return [*nodes, node]

    def _loop(self, entry: Mapping[str, Any], trace: str) -> list[Node]:
        """while_loop as a loop of any number of iterations, whose condition is computed before it
        and at the end of its body.
        """
        condition, body, carried, captured = (item["arg"] for item in entry["inputs"])
        state, around = self._items(carried), self._items(captured)
        before = self._inner(condition, [*state, *around], ".first")
        nodes, go = self._truth(before.results[0], entry, "first")
        formals = self._formals(entry, len(state) + 1)
        step = self._inner(body, [*formals[1:], *around])
        after = self._inner(condition, [*step.results, *around], ".next")
        more, again = self._truth(after.results[0], entry, "next")
        block = Block([*step.members, *after.members, *more], formals=formals)
        return_values(block, [again, *step.results])
        arguments = [graph.literal(ENDLESS), go, *state]
        names = ("",) * len(arguments)
        node = Node("prim::Loop", names, arguments, target=entry["target"], trace=trace)
        node.inner.append(block)
        self._results(node, entry)
        return [*before.members, *nodes, node]

    def _scan(self, entry: Mapping[str, Any], trace: str) -> list[Node]:
        """A scan of state and sequences, or of sequences alone: map."""
        body, *operands, captured = (item["arg"] for item in entry["inputs"])
        arguments = [self.argument(operand) for operand in operands]
        count = sum(len(self._items(operand)) for operand in operands)
        kind, _ = operator_of(entry["target"])
        names = ("xs",) if len(operands) == 1 else ("init", "xs")
        node = Node(kind, names, arguments, target=entry["target"], trace=trace)
        formals = self._formals(entry, count)
        block = self._inner(body, [*formals, *self._items(captured)])
        block.formals = formals
        node.inner.append(block)
        self._results(node, entry)
        return [node]

    def _inner(self, argument: Mapping[str, Any], actuals: list[Value], suffix: str = "") -> Block:
        """A graph among a node's arguments, its inputs being those values."""
        inner = argument["as_graph"]
        reading = Reading({}, f"{self.prefix}{inner['name']}{suffix}.")
        for formal, actual in zip(inner["graph"]["inputs"], actuals, strict=True):
            ((_, content),) = formal.items()
            reading.values[content.get("name", content.get("as_name"))] = actual
        return reading.run(inner["graph"])

    def _items(self, argument: Mapping[str, Any]) -> list[Value]:
        """The values of a list among a node's arguments."""
        return self.argument(argument).producer.arguments

    def _formals(self, entry: Mapping[str, Any], count: int) -> list[Value]:
        name = f"{self.prefix}{entry['name']}"
        return [graph.parameter(f"{name}.{index}") for index in range(count)]

    def _truth(
        self, condition: Value, entry: Mapping[str, Any], name: str
    ) -> tuple[list[Node], Value]:
        """A condition as a truth value, and the nodes that make it one."""
        if condition.kind.name != "TensorType":
            return [], condition
        node = Node("aten::Bool", ("a",), [condition], target=entry["target"])
        truth = graph.parameter(f"{self.prefix}{entry['name']}.{name}", Type("BoolType"))
        truth.producer = node
        node.results.append(truth)
        return [node], truth


_HIGHER_ORDER: Mapping[str, Callable[[Reading, Mapping[str, Any], str], list[Node]]] = {
    "torch.ops.higher_order.cond": Reading._branch,
    "torch.ops.higher_order.while_loop": Reading._loop,
    "torch.ops.higher_order.scan": Reading._scan,
    "torch.ops.higher_order.map_impl": Reading._scan,
}


def operator_of(target: str) -> tuple[str, str]:
    """The operator that a target names, as the tables of operators call it, and its overload."""
    if not target.startswith(_OPS):
        kind = _PYTHON.get(target.rpartition(".")[2])
        return kind or f"python::{target}", ""
    space, _, rest = target.removeprefix(_OPS).partition(".")
    name, _, overload = rest.partition(".")
    return f"{space}::{name}", overload


def _literal(kind: str, content: Any) -> Any:
    match kind:
        case "as_none":
            return None
        case "as_int" | "as_float" | "as_bool" | "as_string":
            return content if kind == "as_string" else number_of(content)
        case "as_scalar_type":
            return NUMBERS.get(DTYPES.get(content, ""), -1)
        case "as_memory_format" | "as_layout":
            return 0
        case "as_device":
            return str(content["type"])
        case "as_complex":
            return complex(content["real"], content["imag"])
    raise ImportFailed(
        f"an argument of the kind {kind!r} is not supported",
        reason="unsupported_form",
        hint="write that part of the model with tensors and numbers",
    )


def number_of(item: Any) -> Any:
    """A number of the file, which has infinities and NaN as texts."""
    return _INFINITE.get(item, item) if isinstance(item, str) else item


def _default(value: Any) -> Value:
    if isinstance(value, list):
        return graph.list_of([graph.literal(item) for item in value])
    return graph.literal(number_of(value))


def read_graph(program: Program) -> tuple[Block, dict[str, Value]]:
    """The program's nodes, and its values by name; raises LoadError."""
    with refusing_other_kinds():
        return _read_graph(program)


def _read_graph(program: Program) -> tuple[Block, dict[str, Value]]:
    reading = Reading()
    for name in (item.value for item in program.arguments):
        reading.make(name)
    for name in (item.value for item in program.stored):
        reading.make(name)
    for name in program.constants:
        reading.values.setdefault(name, graph.literal(program.constants[name]))
    block = reading.run({"nodes": program.document["nodes"], "outputs": []})
    return_values(block, [reading.argument(argument) for _, argument in program.outputs])
    for argument in program.mutated.values():
        reading.argument(argument).users.append(RETURN)
    return block, reading.values


def return_values(block: Block, values: list[Value]) -> None:
    """Make values the results of a block, which count as read there."""
    block.results = values
    for value in values:
        items = value.producer.arguments if value.producer.operator == graph.LIST else []
        for part in (value, *items):
            part.users.append(RETURN)


def walk(block: Block) -> Iterator[Node]:
    """Every node, those of inner blocks too."""
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from walk(inner)


def label_of(node: Node) -> str:
    """The name of a node's first output, or its kind."""
    return next((f"%{output.debugName()}" for output in node.outputs()), node.kind())


def lacks(block: Block) -> list[dict[str, str]]:
    """Every node that no handler serves: its node, op and why."""
    return [
        {"node": label_of(node), "op": node.kind(), "why": why}
        for node in walk(block)
        if (why := signatures.why_not(node.kind())) is not None
    ]


def states_of(program: Program, block: Block, values: Mapping[str, Value]) -> list[Stored]:
    """The stored tensors that a call changes: those that nodes write in place, and those that the
    file says are replaced.
    """
    written = {
        _root(node.arguments[0]) for node in walk(block) if node.arguments and _writes(node.kind())
    }
    return [
        stored
        for stored in program.stored
        if stored.path in program.mutated or values[stored.value] in written
    ]


def _writes(kind: str) -> bool:
    """True for an operator that changes its first argument."""
    return kind.endswith("_") and not kind.endswith("__")


def _root(value: Value) -> Value:
    """The tensor that a value is a view of."""
    while value.producer.arguments and (
        value.producer.operator in signatures.views() or _writes(value.producer.operator)
    ):
        value = value.producer.arguments[0]
    return value
