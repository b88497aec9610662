"""Small random graphs of shape computations, compiled once and compared with ONNX Runtime at
several extents.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx
import pytest
from onnx import helper
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, RuntimeException

from tests.compiler.ir.onnx.running import Arrays, assert_close, build, model_of, session_of

TRIAL = (6, 4)
EXTENTS = (TRIAL, (1, 1), (2, 3), (1, 5), (7, 1), (4, 4))
REFUSALS = (Fail, InvalidArgument, RuntimeException)


@dataclass
class Graph:
    """Nodes so far; `values` are what ONNX Runtime gives for them at the trial extents."""

    choose: random.Random
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    values: dict[str, np.ndarray] = field(default_factory=dict)
    axes: list[str] = field(default_factory=list)

    def constant(self, *numbers: int) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.array(numbers, np.int64)
        return name

    def node(self, op: str, *inputs: str, **attributes: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def model(self, outputs: list[str]) -> onnx.ModelProto:
        return model_of(
            self.nodes, {"x": f"float32[{','.join(self.axes)}]"}, self.constants, 18, outputs
        )


def feed(axes: list[str], n: int, m: int) -> Arrays:
    shape = [{"n": n, "m": m}.get(axis) or int(axis) for axis in axes]
    return {"x": (np.random.default_rng(shape).standard_normal(shape) * 3).astype(np.float32)}


def reshape(g: Graph, x: str, rank: int, axis: int) -> None:
    shape = g.node("Shape", x)
    extents = g.node(
        "Gather", shape, g.constant(*g.choose.sample(range(rank), g.choose.randrange(1, rank + 1)))
    )
    g.node("Reshape", x, g.node("Concat", extents, g.constant(-1), axis=0))


def slice_axis(g: Graph, x: str, rank: int, axis: int) -> None:
    limits = (
        g.choose.choice((0, 1, -1, -2, 2, -100)),
        g.choose.choice((1, 2, -1, -2, 100)),
        axis,
        g.choose.choice((1, 1, 2, -1, -2)),
    )
    g.node("Slice", x, *(g.constant(limit) for limit in limits))


def cut_by_extent(g: Graph, x: str, rank: int, axis: int) -> None:
    extent = g.node("Gather", g.node("Shape", x), g.constant(axis))
    cut = g.node(
        g.choose.choice(("Div", "Sub", "Mod")), extent, g.constant(g.choose.choice((1, 2, 3)))
    )
    g.node("Slice", x, cut, g.constant(2**62), g.constant(axis))


def concatenate(g: Graph, x: str, rank: int, axis: int) -> None:
    alike = [
        name
        for name, value in g.values.items()
        if value.dtype == g.values[x].dtype and value.ndim == rank
    ]
    g.node("Concat", x, g.choose.choice(alike), axis=axis)


def combine(g: Graph, x: str, rank: int, axis: int) -> None:
    alike = [name for name, value in g.values.items() if value.dtype == g.values[x].dtype]
    g.node(g.choose.choice(("Add", "Sub", "Mul", "Min", "Max")), x, g.choose.choice(alike))


def choose_where(g: Graph, x: str, rank: int, axis: int) -> None:
    alike = [name for name, value in g.values.items() if value.dtype == g.values[x].dtype]
    other = g.choose.choice(alike)
    g.node("Where", g.node("Less", x, other), other, x)


STEPS: tuple[Callable[[Graph, str, int, int], object], ...] = (
    reshape,
    slice_axis,
    cut_by_extent,
    concatenate,
    combine,
    choose_where,
    lambda g, x, rank, axis: g.node("Shape", x),
    lambda g, x, rank, axis: g.node("Transpose", x, perm=g.choose.sample(range(rank), rank)),
    lambda g, x, rank, axis: g.node("Unsqueeze", x, g.constant(axis)),
    lambda g, x, rank, axis: g.node("Flatten", x, axis=axis),
    lambda g, x, rank, axis: g.node("Gather", x, g.constant(0, -1, 0), axis=axis),
    lambda g, x, rank, axis: g.node(
        "Tile", x, g.constant(*(g.choose.choice((1, 2, 3)) for _ in range(rank)))
    ),
    lambda g, x, rank, axis: g.node(
        "Pad", x, g.constant(*(g.choose.choice((0, 1, 2)) for _ in range(2 * rank)))
    ),
    lambda g, x, rank, axis: g.node(
        "ReduceSum", x, g.constant(axis), keepdims=g.choose.choice((0, 1))
    ),
    lambda g, x, rank, axis: g.node("Expand", x, g.node("Shape", g.choose.choice(list(g.values)))),
    lambda g, x, rank, axis: g.node("Cast", x, to=g.choose.choice((1, 7))),
)


def grown(seed: int) -> Graph:
    """A graph of some eight nodes, each of which ONNX Runtime takes at the trial extents and gives
    elements for.
    """
    choose = random.Random(seed)
    g = Graph(choose, axes=["n", *choose.choices(("n", "m", "1", "3"), k=choose.randrange(1, 3))])
    g.values.update(feed(g.axes, *TRIAL))
    for _ in range(40):
        x = choose.choice(list(g.values)[-3:])
        rank, before = g.values[x].ndim, len(g.nodes)
        if rank:
            choose.choice(STEPS)(g, x, rank, choose.randrange(rank))
        names = [node.output[0] for node in g.nodes[before:]]
        try:
            values = (
                session_of(g.model(names)).run(None, dict(feed(g.axes, *TRIAL))) if names else []
            )
        except REFUSALS:
            values = []
        if values and all(0 < value.size < 3000 and value.ndim < 6 for value in values):
            g.values.update(zip(names, values, strict=True))
        else:
            del g.nodes[before:]
        if len(g.nodes) >= 8:
            break
    return g


@pytest.mark.parametrize("seed", range(8))
def test_random_graphs(seed: int) -> None:
    g = grown(seed)
    read = {name for node in g.nodes for name in node.input}
    model = g.model([node.output[0] for node in g.nodes if node.output[0] not in read])
    built, session = (
        build(model, {name: (1, None) for name in "nm" if name in g.axes}),
        session_of(model),
    )
    names, judged = [output.name for output in model.graph.output], 0
    for extents in EXTENTS:
        try:
            wanted = session.run(None, dict(feed(g.axes, *extents)))
        except REFUSALS:
            continue
        assert_close(built.run(feed(g.axes, *extents)), wanted, names)
        judged += 1
    assert judged
