"""Branches that a value or an extent decides, and loops."""

from collections.abc import Mapping, Sequence

import onnx
from onnx import TensorProto, helper

from tests.fuzz.draft import Draft, Inapplicable, Value, least
from tests.fuzz.registry import operator


def body(
    nodes: Sequence[onnx.NodeProto],
    outputs: Sequence[str],
    inputs: Mapping[str, int] | None = None,
    rank: int | None = None,
) -> onnx.GraphProto:
    """A graph inside a node; inputs: their types; rank: of its outputs, floats, where it must be
    stated: ONNX Runtime does not find it in a Scan behind a Split by sizes of a run.
    """
    return helper.make_graph(
        list(nodes),
        outputs[0],
        [
            # Counters and conditions are scalars; floats are of any shape.
            helper.make_tensor_value_info(name, kind, None if kind == TensorProto.FLOAT else [])
            for name, kind in (inputs or {}).items()
        ],
        [
            helper.make_empty_tensor_value_info(name)
            if rank is None
            else helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * rank)
            for name in outputs
        ],
    )


def _decided(draft: Draft, x: Value) -> str:
    """Add a condition: an axis is long, or the first number positive."""
    alone = draft.constant([], "int64")
    if x.name == "x0" and least(x.shape[-1]) > 0 and draft.chance(0.5) and _all_filled(x):
        first = draft.node("Reshape", [x.name, draft.constant([-1], "int64")])[0]
        number = draft.node("Gather", [first, draft.constant(0, "int64")])[0]
        return draft.node("Greater", [number, draft.constant(0.0)])[0]
    axis = draft.axis(x)
    size = draft.node("Shape", [x.name], start=axis, end=axis + 1)[0]
    edge = draft.constant([draft.choose((2, 16, 17))], "int64")
    longer = draft.node("Greater", [size, edge])[0]
    return draft.node("Reshape", [longer, alone])[0]


def _all_filled(x: Value) -> bool:
    return all(least(extent) > 0 for extent in x.shape)


@operator(0.5)
def branch(draft: Draft) -> None:
    """If, over two functions of what both see."""
    x = draft.pick()
    decided, graphs = _decided(draft, x), []
    for op in ("Tanh", "Neg"):
        name = draft.fresh("b")
        graphs.append(body([helper.make_node(op, [x.name], [name], name)], [name]))
    draft.apply("If", [decided], x.shape, then_branch=graphs[0], else_branch=graphs[1])


@operator(1)
def unlike_branches(draft: Draft) -> None:
    """If, over a layer and a few functions, with two results."""
    x = draft.pick(2, 3, 4)
    depth = x.fix_extents(-1)
    weight, factor = draft.weight(depth, depth, fan=depth), draft.constant(0.5)
    decided = _decided(draft, x)
    a, b, c, d, e = (draft.fresh("b") for _ in range(5))
    layer = [
        helper.make_node("MatMul", [x.name, weight], [a], a),
        helper.make_node("Relu", [a], [b], b),
    ]
    plain = [
        helper.make_node("Mul", [x.name, factor], [c], c),
        helper.make_node("Sub", [x.name, c], [d], d),
        helper.make_node("Sigmoid", [d], [e], e),
    ]
    names = draft.node(
        "If", [decided], count=2, then_branch=body(layer, [b, a]),
        else_branch=body(plain, [e, d]),
    )  # fmt: skip
    for name in names:
        draft.keep(name, x.shape)


@operator(1)
def loop(draft: Draft) -> None:
    """Loop over a state, a number of times that is fixed or an extent of its own; the state of
    every turn is a result where the number is fixed.
    """
    x = draft.pick(1, 2, 3)
    turn, go, state, inner, after, on, retained = (draft.fresh("b") for _ in range(7))
    bias = draft.constant(0.25)
    nodes = [
        helper.make_node("Add", [state, bias], [inner], inner),
        helper.make_node(draft.choose(("Tanh", "Sin", "Sigmoid")), [inner], [after], after),
        helper.make_node("Identity", [go], [on], on),
        helper.make_node("Identity", [after], [retained], retained),
    ]
    counted = draft.chance(0.5) and x.rank < 3
    if counted:
        count = draft.choose((1, 2, 5))
        trips = draft.constant(count, "int64")
    else:
        axis = draft.axis(x)
        if least(x.shape[axis]) < 1:
            raise Inapplicable
        size = draft.node("Shape", [x.name], start=axis, end=axis + 1)[0]
        trips = draft.node("Squeeze", [size])[0]
    arguments = {turn: TensorProto.INT64, go: TensorProto.BOOL, state: TensorProto.FLOAT}
    graph = body(nodes, [on, after, *([retained] if counted else [])], arguments)
    names = draft.node("Loop", [trips, "", x.name], count=2 if counted else 1, body=graph)
    draft.keep(names[0], x.shape)
    if counted:
        draft.keep(names[1], (count, *x.shape))


@operator(1)
def scan(draft: Draft) -> None:
    """Scan of the first axis: a running state, and a row a turn."""
    x = draft.pick(2, 3)
    if least(x.shape[0]) < 1 or min(map(least, x.shape[1:])) < 1:
        raise Inapplicable
    first = draft.node("Gather", [x.name, draft.constant(0, "int64")], axis=0)[0]
    start = draft.node("Mul", [first, draft.constant(0.0)])[0]
    state, row, total, bent, out = (draft.fresh("b") for _ in range(5))
    nodes = [
        helper.make_node("Add", [state, row], [total], total),
        helper.make_node("Tanh", [total], [bent], bent),
        helper.make_node("Mul", [bent, row], [out], out),
    ]
    direction = int(draft.chance(0.4))
    names = draft.node(
        "Scan", [start, x.name], count=2, num_scan_inputs=1,
        body=body(nodes, [bent, out], dict.fromkeys((state, row), TensorProto.FLOAT), x.rank - 1),
        scan_input_directions=[direction],
    )  # fmt: skip
    draft.keep(names[0], x.shape[1:])
    draft.keep(names[1], x.shape)
