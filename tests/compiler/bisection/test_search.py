"""The search over graphs whose faults are made up: a cut departs if it holds a certain set of
nodes.
"""

import math
import random
from collections.abc import Callable

import onnx
import pytest
from onnx import TensorProto, helper

from compiler.bisection.cuts import Cut
from compiler.bisection.search import Location, Search
from compiler.ir.onnx.model.nodes import Graph


def graph_of(taken: list[list[int]]) -> Graph:
    """Node `n3` adds up the values of the nodes that it takes, or `x` where it takes none."""
    nodes = [
        helper.make_node(
            "Sum", [f"v{source}" for source in sources] or ["x"], [f"v{index}"], f"n{index}"
        )
        for index, sources in enumerate(taken)
    ]
    value = helper.make_tensor_value_info
    used = {source for sources in taken for source in sources}
    outputs = [f"v{index}" for index in range(len(taken)) if index not in used]
    model = helper.make_model(
        helper.make_graph(
            nodes,
            "graph",
            [value("x", TensorProto.FLOAT, ["n"])],
            [value(name, TensorProto.FLOAT, ["n"]) for name in outputs],
        )
    )
    return Graph(model, {})


class Faulty:
    """Departing values of cuts in which all the faulty nodes are together: those that depend on the
    last of them.

    hidden: whether the fault goes away once an inner faulty value is an output.
    """

    def __init__(self, graph: Graph, faulty: set[int], hidden: bool = True) -> None:
        self.graph, self.faulty, self.hidden, self.cuts = graph, faulty, hidden, list[Cut]()

    def __call__(self, cut: Cut) -> tuple[str, ...]:
        self.cuts.append(cut)
        last = max(self.faulty)
        inner = {f"v{index}" for index in self.faulty - {last}}
        if not self.faulty <= cut.nodes or (self.hidden and inner & set(cut.outputs)):
            return ()
        return tuple(name for name in cut.outputs if last in self.graph.behind([name], cut.nodes))


def chain(length: int) -> list[list[int]]:
    return [[index - 1] if index else [] for index in range(length)]


def outputs_of(graph: Graph) -> list[str]:
    return [output.name for output in graph.model.graph.output]


def search(graph: Graph, faulty: Callable[[Cut], tuple[str, ...]]) -> Location:
    return Search(graph, outputs_of(graph), faulty).run()


@pytest.mark.parametrize("length", [1, 2, 3, 7, 64, 100])
def test_every_single_node_is_found(length: int) -> None:
    graph = graph_of(chain(length))
    for node in range(length):
        faulty = Faulty(graph, {node})
        location = search(graph, faulty)
        assert (location.last, location.value) == (node, f"v{node}")
        assert location.cut == Cut(frozenset({node}), (f"v{node}",))
        assert len(faulty.cuts) <= 2 * math.ceil(math.log2(length)) + 2


@pytest.mark.parametrize("width", [2, 3, 5])
def test_nodes_that_are_wrong_only_in_company_are_found(width: int) -> None:
    graph = graph_of(chain(40))
    for first in range(40 - width + 1):
        faults = set(range(first, first + width))
        location = search(graph, Faulty(graph, faults))
        assert location.last == max(faults)
        assert location.cut is not None
        assert location.cut.nodes == faults


def test_branches_beside_the_fault_are_left_out() -> None:
    """A fault of two nodes, between which others of their branches lie in the model's order."""
    for seed in range(30):
        draw = random.Random(seed)
        taken = [
            sorted(draw.sample(range(index), min(index, draw.choice([1, 1, 2, 3]))))
            for index in range(40)
        ]
        graph = graph_of(taken)
        last = draw.choice([index for index in range(10, 40) if taken[index]])
        faults = {draw.choice(taken[last]), last}
        if not graph.behind(outputs_of(graph)) >= faults:
            continue
        location = search(graph, Faulty(graph, faults))
        assert location.last == last
        assert location.cut is not None
        assert location.cut.nodes == faults


def test_a_node_is_found_before_those_that_follow_from_it() -> None:
    """Both the node 5 and the node 9 are wrong."""
    graph = graph_of(chain(12))
    first, second = Faulty(graph, {5}), Faulty(graph, {9})

    def departing(cut: Cut) -> tuple[str, ...]:
        names = {*first(cut), *second(cut)}
        return tuple(name for name in cut.outputs if name in names)

    assert search(graph, departing).last == 5


def test_a_model_no_part_of_which_departs_gives_no_cut() -> None:
    graph = graph_of(chain(32))
    cuts = list[Cut]()

    def departing(cut: Cut) -> tuple[str, ...]:
        cuts.append(cut)
        return ()

    assert search(graph, departing) == Location(0, 31)
    assert len(cuts) == 3


def test_progress_is_told_from_the_whole_to_the_node() -> None:
    graph, locations = graph_of(chain(64)), list[Location]()
    Search(graph, outputs_of(graph), Faulty(graph, {20, 21}), locations.append).run()
    spans = [location.last - location.first for location in locations]
    assert spans == sorted(spans, reverse=True)
    assert (locations[0].last, locations[-1].last) == (31, 21)


def test_only_what_the_departing_outputs_depend_on_is_tried() -> None:
    """The nodes 0, 1, 2 and 3, 4, 5 are two models in one."""
    graph = graph_of([[], [0], [1], [], [3], [4]])
    faulty = Faulty(graph, {4})
    assert Search(graph, ["v5"], faulty).run().last == 4
    assert all(cut.nodes <= {3, 4, 5} for cut in faulty.cuts)


def test_the_nodes_of_shapes_belong_to_every_cut_that_needs_them() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["": 17]>
        g (float[n, 4] x) => (float[a, b] y) <int64[1] minus = {-1}> {
            a = Tanh(x)
            s = Shape(a)
            r = Concat<axis = 0>(minus, s)
            b = Sigmoid(a)
            y = Reshape(b, r)
        }"""
    )
    graph = Graph(model, {})
    assert {graph.op(index) for index in graph.bookkeeping} == {"Shape", "Concat"}
    location = search(graph, Faulty(graph, {4}))
    assert location.cut is not None
    assert {graph.op(index) for index in location.cut.nodes} == {"Shape", "Concat", "Reshape"}
    assert graph.inputs_of(location.cut.nodes) == ("a", "b")
