"""Variables, which are inputs and outputs of the model."""

from compiler.ir.tflite.node import Node
from compiler.ir.tflite.registry import op


@op("VAR_HANDLE")
def var_handle(node: Node) -> list[str]:
    """The name of a variable, which no value stands for."""
    return [""]


@op("READ_VARIABLE")
def read_variable(node: Node) -> str:
    """A variable's content."""
    return node.states.read(node.variable(0))


@op("ASSIGN_VARIABLE")
def assign_variable(node: Node) -> list[str]:
    """Another content for a variable."""
    node.states.write(node.variable(0), node.x(1))
    return []


@op("CALL_ONCE")
def call_once(node: Node) -> list[str]:
    """The graph that fills variables before the first call: their initial content is the caller's
    to give.
    """
    return []
