"""scan and map of torch.export, whose bodies are graphs of their own."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from compiler.ir.aten.memory import Ref
from compiler.ir.aten.node import Node
from compiler.ir.aten.operators.branching import results
from compiler.ir.aten.registry import control
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.ops.shape import control as ctl


@control("higher_order::scan")
def scan(b: Builder, node: Node) -> Any:
    """body(state, items) -> state, outputs, over the first axis of `xs`; outputs stack along it."""
    return results(ctl.scan(b, node.values("init"), _sequences(node), partial(_step, node)))


@control("higher_order::map_impl")
def map_items(b: Builder, node: Node) -> Any:
    """body(items) -> outputs, over the first axis of `xs`; outputs stack along it."""
    return results(ctl.scan(b, [], _sequences(node), partial(_step, node)))


def _sequences(node: Node) -> list[Value]:
    sequences = node.values("xs")
    if not sequences or not all(sequence.shape for sequence in sequences):
        node.fail("it goes over no axis", reason="unsupported_form")
    return sequences


def _step(node: Node, state: Sequence[Value], items: Sequence[Value]) -> list[Value]:
    (block,) = node.raw.blocks()
    scope = node.scope.inner()
    for raw, value in zip(block.inputs(), [*state, *items], strict=True):
        scope.bind(raw, scope.wrap(value))
    return [_tensor(node, item) for item in scope.run(block)]


def _tensor(node: Node, item: Any) -> Value:
    if not isinstance(item, Ref):
        node.fail("its body gives a value that is no tensor", reason="unsupported_form")
    return node.memory.read(item)
