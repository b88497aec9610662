"""ONNX control flow: If, Loop and Scan."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import onnx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.onnx.indices import limit_values
from compiler.ir.onnx.model.lists import (
    Content,
    Form,
    Items,
    Stacked,
    flatten,
    stack_of,
    unflatten,
)
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.registry import op
from compiler.ir.ops.shape import control, layout
from compiler.ir.shapes.index_bounds import USUAL


@op("If")
def branch(b: Builder, node: Node) -> Sequence[Content | None]:
    """The outputs of the branch that the condition takes; where only one of them fits the model,
    every run must take it.
    """
    then, other = node.attr("then_branch"), node.attr("else_branch")
    condition = node.value(0)
    taken = node.scope.model.assumed.get(node.label)
    if taken is not None and control.decide(b, condition) is None:
        control.demand(b, condition, taken, node.label)
        return node.scope.contents(then if taken else other)
    known = control.decide(b, condition)
    if known is not None:
        return node.scope.contents(then if known else other)
    forms: list[list[Form]] = []

    def make(graph: onnx.GraphProto) -> list[Value]:
        values, form = _flat(node, node.scope.contents(graph))
        forms.append(form)
        if form != forms[0]:
            node.fail("its branches give sequences of different lengths", reason="sequence")
        return values

    results = control.branch(b, condition, lambda: make(then), lambda: make(other))
    return unflatten(results, forms[0])


def _flat(node: Node, contents: Sequence[Content | None]) -> tuple[list[Value], list[Form]]:
    present = [content for content in contents if content is not None]
    if len(present) < len(contents):
        node.fail("only run time knows whether an optional value is there", reason="optional")
    return flatten(present)


@op("Loop")
def loop(b: Builder, node: Node) -> Sequence[Content | None]:
    """body(iteration, condition, state) -> condition, state, scan outputs; scan outputs stack along
    a new first axis.
    """
    body: onnx.GraphProto = node.attr("body")
    carried = list(node.inputs[2:])
    trips = node.optional(0)
    go = node.optional(1)
    limit_values(b, node, 0, -1, USUAL, usual=True)
    scans = len(body.output) - 1 - len(carried)
    b.stacks = b.stacks or scans > 0
    count = _certain_trips(b, trips, go)
    if count is not None and _goes_on(body) and count <= control.UNROLLED:
        return _unrolled(b, node, body, carried, count, scans)
    state, forms = _flat(node, _stacked(b, node, body, carried))
    stacks = _stacks(b, node, body, unflatten(state, forms))

    def step(iteration: Value, current: Sequence[Value]) -> tuple[Value, Sequence[Value]]:
        current_state = unflatten(current[: len(state)], forms)
        contents = node.scope.contents(
            body, [iteration, Known(np.asarray(True), "bool"), *current_state]
        )
        outputs, form = _flat(node, contents)
        if form != [None, *forms, *[None] * scans]:
            node.fail("an iteration makes another kind of value of its state", reason="sequence")
        grown = [
            control.push(b, stack, item)
            for stack, item in zip(current[len(state) :], outputs[1 + len(state) :], strict=True)
        ]
        return outputs[0], [*outputs[1 : 1 + len(state)], *grown]

    results = control.loop(b, trips, go, [*state, *stacks], step)
    return [*unflatten(results[: len(state)], forms), *results[len(state) :]]


def _stacked(
    b: Builder, node: Node, body: onnx.GraphProto, carried: Sequence[Content | None]
) -> list[Content | None]:
    """The state with its sequences as stacks: only run time knows how many items they will have."""

    def first(index: int) -> list[Value]:
        start = [Known.of(0), Known(np.asarray(True), "bool"), *carried]
        item = node.scope.contents(body, start)[1 + index]
        if not isinstance(item, Items) or not item.values:
            node.fail("only run time knows how many items a sequence has", reason="sequence")
        return [item.values[0]]

    stacked: list[Content | None] = []
    for index, content in enumerate(carried):
        if not isinstance(content, Items):
            stacked.append(content)
            continue
        if not content.values:
            stacked.append(Stacked(control.empty_stacks(b, partial(first, index))[0]))
            continue
        stack = stack_of(b, content)
        if stack is None:
            node.fail("a loop adds to a sequence whose items differ in shape", reason="sequence")
        stacked.append(Stacked(stack))
    return stacked


def _certain_trips(b: Builder, trips: Value | None, go: Value | None) -> int | None:
    """The trip count, where it and the first condition are known."""
    if not isinstance(trips, Known) or trips.symbolic:
        return None
    if go is not None and control.decide(b, go) is not True:
        return 0 if control.decide(b, go) is False else None
    return int(trips.data.reshape(-1)[0])


def _goes_on(body: onnx.GraphProto) -> bool:
    """True if the body's condition is always true: a constant, or the condition that came in."""
    name = body.output[0].name
    producers = {output: proto for proto in body.node for output in proto.output}
    while name in producers and producers[name].op_type == "Identity":
        name = producers[name].input[0]
    if name == body.input[1].name:
        return True
    constants = {tensor.name: tensor for tensor in body.initializer}
    if (
        name in producers
        and producers[name].op_type == "Constant"
        and producers[name].attribute[0].name == "value"
    ):
        constants[name] = producers[name].attribute[0].t
    return name in constants and bool(onnx.numpy_helper.to_array(constants[name]).all())


def _unrolled(
    b: Builder,
    node: Node,
    body: onnx.GraphProto,
    state: list[Content | None],
    count: int,
    scans: int,
) -> list[Content | None]:
    collected: list[list[Value]] = [[] for _ in range(scans)]
    for iteration in range(count):
        results = node.scope.contents(
            body, [Known.of(iteration), Known(np.asarray(True), "bool"), *state]
        )
        (go, *items), _ = _flat(node, [results[0], *results[1 + len(state) :]])
        if control.decide(b, go) is False:
            node.fail("a loop's condition turned false while unrolling", reason="loop")
        state = results[1 : 1 + len(state)]
        for column, item in zip(collected, items, strict=True):
            column.append(layout.unsqueeze(b, item, [0]))
    stacks = (
        [layout.concat(b, column, 0) for column in collected]
        if count
        else _stacks(b, node, body, state)
    )
    return [*state, *stacks]


def _stacks(
    b: Builder, node: Node, body: onnx.GraphProto, state: Sequence[Content | None]
) -> list[Value]:
    first = [Known.of(0), Known(np.asarray(True), "bool"), *state]

    def items() -> list[Value]:
        return _flat(node, node.scope.contents(body, first)[1 + len(state) :])[0]

    return control.empty_stacks(b, items)


@op("Scan", since=9)
def scan(b: Builder, node: Node) -> list[Value]:
    """body(state, items) -> state, outputs, over slices of the scan inputs; outputs stack along
    their axes.
    """
    body: onnx.GraphProto = node.attr("body")
    inputs = node.attr("num_scan_inputs")
    states = len(node.inputs) - inputs
    outputs = len(body.output) - states
    sequences = [
        _oriented(
            b,
            node.value(states + i),
            _attribute_item(node, "scan_input_axes", i),
            _attribute_item(node, "scan_input_directions", i),
        )
        for i in range(inputs)
    ]
    results = control.scan(
        b, [node.value(i) for i in range(states)], sequences, _step_of(node, body)
    )
    stacked = [
        _restored(
            b,
            value,
            _attribute_item(node, "scan_output_axes", i),
            _attribute_item(node, "scan_output_directions", i),
        )
        for i, value in enumerate(results[states:])
    ]
    assert len(stacked) == outputs
    return [*results[:states], *stacked]


def _step_of(node: Node, body: onnx.GraphProto) -> control.Step:
    return lambda state, items: node.scope.subgraph(body, [*state, *items])


def _attribute_item(node: Node, attribute: str, index: int) -> int:
    values = node.attr(attribute, [])
    return int(values[index]) if index < len(values) else 0


def _oriented(b: Builder, value: Value, axis: int, backward: int) -> Value:
    """The sequence with its scan axis first, reversed where it is scanned backward."""
    axis = layout.axis_of(axis, len(value.shape))
    moved = layout.transpose(b, value, [axis, *(i for i in range(len(value.shape)) if i != axis)])
    return _reversed(b, moved) if backward else moved


def _restored(b: Builder, value: Value, axis: int, backward: int) -> Value:
    axis = layout.axis_of(axis, len(value.shape))
    value = _reversed(b, value) if backward else value
    order = list(range(1, len(value.shape)))
    order.insert(axis, 0)
    return layout.transpose(b, value, order)


def _reversed(b: Builder, value: Value) -> Value:
    return layout.strided_slice(b, value, 0, -1, -layout.INT64_MAX, -1)


@op("Scan", since=8)
def scan_batched(b: Builder, node: Node) -> list[Value]:
    """Opset 8: every state and sequence has a batch axis first; sequence_lens are not supported."""
    if node.has(0):
        node.fail("Scan with sequence_lens is not supported", reason="unsupported_form")
    body: onnx.GraphProto = node.attr("body")
    inputs = node.attr("num_scan_inputs")
    values = [node.value(index) for index in range(1, len(node.inputs))]
    states = len(values) - inputs
    batch = b.facts.simplify(values[0].shape[0])
    for value in values[1:]:
        b.same(batch, value.shape[0], "Scan's batches differ")

    def row(position: Value) -> list[Value]:
        picked = [control.nth(b, value, position) for value in values]
        sequences = [
            _reversed(b, v) if _attribute_item(node, "directions", i) else v
            for i, v in enumerate(picked[states:])
        ]
        return control.scan(b, picked[:states], sequences, _step_of(node, body))

    if isinstance(batch, int) and 0 < batch <= control.UNROLLED:
        rows = [row(Known.of(position)) for position in range(batch)]
        return [
            layout.concat(b, [layout.unsqueeze(b, item, [0]) for item in column], 0)
            for column in zip(*rows, strict=True)
        ]

    def step(position: Value, stacks: Sequence[Value]) -> tuple[Value, Sequence[Value]]:
        return Known(np.asarray(True), "bool"), [
            control.push(b, stack, item) for stack, item in zip(stacks, row(position), strict=True)
        ]

    stacks = control.empty_stacks(b, lambda: row(b.tensor(Known.of(0))))
    results = control.loop(b, Known.of(batch), None, stacks, step)
    return [b.adopt(b.tensor(value).expr, [batch, *value.shape[1:]]) for value in results]
