"""A program's graph in the words in which the operators read TorchScript's: nodes with a kind,
inputs, outputs and blocks; values with a name and the node that makes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

CONSTANT, LIST, PARAMETER = "prim::Constant", "prim::ListConstruct", "prim::Param"


@dataclass(frozen=True)
class Type:
    """The kind of a value: `TensorType`, `IntType`, `FloatType`, `BoolType`, `ListType`."""

    name: str

    def kind(self) -> str:
        """Its name."""
        return self.name

    def __str__(self) -> str:
        return self.name.removesuffix("Type").lower()


@dataclass(eq=False)
class Value:
    """A result of a node, an input of the graph, a literal, or a list of values."""

    name: str
    producer: Node
    kind: Type = Type("TensorType")
    users: list[Node] = field(default_factory=list)
    literal: Any = None
    items: list[Value] = field(default_factory=list)
    """Of a result that is a list, its items."""

    def debugName(self) -> str:  # noqa: N802  torch's name
        """Its name, unique in the program."""
        return self.name

    def node(self) -> Node:
        """The node that makes it."""
        return self.producer

    def uses(self) -> list[Node]:
        """The nodes that read it."""
        return self.users

    def type(self) -> Type:
        """Its kind."""
        return self.kind

    def toIValue(self) -> Any:  # noqa: N802  torch's name
        """A literal's content."""
        return self.literal


@dataclass(eq=False)
class Node:
    """An operator's call. names: of its arguments, in the order of `arguments`; target: what the
    file calls the operator; trace: the lines of the user's code that led to it.
    """

    operator: str
    names: tuple[str, ...] = ()
    arguments: list[Value] = field(default_factory=list)
    results: list[Value] = field(default_factory=list)
    inner: list[Block] = field(default_factory=list)
    target: str = ""
    trace: str = ""

    def kind(self) -> str:
        """The operator as the tables of operators call it, such as `aten::add`."""
        return self.operator

    def inputs(self) -> list[Value]:
        """The arguments."""
        return self.arguments

    def outputs(self) -> list[Value]:
        """The results; one that is a list stands for its items."""
        return self.results

    def output(self) -> Value:
        """The only result."""
        (value,) = self.results
        return value

    def blocks(self) -> list[Block]:
        """The graphs that the node may run."""
        return self.inner

    def schema(self) -> str:
        """Empty: `names` has the arguments."""
        return ""


@dataclass(eq=False)
class Block:
    """Nodes in order, and the values that they are run for. formals: what every run of a loop's
    body is given.
    """

    members: list[Node] = field(default_factory=list)
    results: list[Value] = field(default_factory=list)
    formals: list[Value] = field(default_factory=list)

    def inputs(self) -> list[Value]:
        """The values that a run is given."""
        return self.formals

    def nodes(self) -> Iterator[Node]:
        """The nodes in order."""
        return iter(self.members)

    def outputs(self) -> list[Value]:
        """The results."""
        return self.results


def parameter(name: str, kind: Type = Type("TensorType")) -> Value:
    """A value that the graph is given."""
    node = Node(PARAMETER)
    value = Value(name, node, kind)
    node.results.append(value)
    return value


def literal(content: Any) -> Value:
    """A number, text, None or a dtype's code that a node is called with."""
    node = Node(CONSTANT)
    value = Value("", node, Type("ConstantType"), literal=content)
    node.results.append(value)
    return value


def list_of(items: list[Value]) -> Value:
    """A list that a node is called with."""
    node = Node(LIST, arguments=items)
    value = Value("", node, Type("ListType"))
    node.results.append(value)
    return value
