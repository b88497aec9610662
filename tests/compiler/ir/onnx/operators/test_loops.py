"""Loops and scans whose length only run time knows, beside ONNX Runtime."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.compiler.ir.onnx.running import (
    Arrays,
    Built,
    assert_close,
    assert_like_onnxruntime,
    build,
    normal,
    session_of,
)

NODE = helper.make_node
LAST = np.iinfo(np.int64).max
FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
Form = tuple[str, int, list[str | int]]
HALF = numpy_helper.from_array(np.float32(0.5), "half")


def info(form: Form) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(*form)


def graph(
    nodes: Sequence[onnx.NodeProto], inputs: Sequence[Form], outputs: Sequence[Form]
) -> onnx.GraphProto:
    infos, wanted = [info(form) for form in inputs], [info(form) for form in outputs]
    return helper.make_graph(nodes, "graph", infos, wanted, [HALF])


def model(
    nodes: Sequence[onnx.NodeProto], inputs: Sequence[Form], outputs: Sequence[Form]
) -> onnx.ModelProto:
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph(nodes, inputs, outputs), opset_imports=opsets, ir_version=8)


def body(
    nodes: Sequence[onnx.NodeProto], state: Sequence[Form], after: Sequence[Form], suffix: str = ""
) -> onnx.GraphProto:
    """A Loop's body: its nodes give `again` where it may end, else it goes on."""
    index, go, again = (f"{name}{suffix}" for name in ("i", "go", "again"))
    ends = any(again in node.output for node in nodes)
    keep = [] if ends else [NODE("Identity", [go], [again])]
    return graph(
        [*keep, *nodes], [(index, INT, []), (go, BOOL, []), *state], [(again, BOOL, []), *after]
    )


COUNT: Form = ("t", INT, [])
X: Form = ("x", FLOAT, ["n"])
NEXT = [
    NODE("Mul", ["s", "half"], ["h"]),
    NODE("Add", ["h", "x"], ["next"]),
]
STATE: tuple[list[Form], list[Form]] = ([("s", FLOAT, ["n"])], [("next", FLOAT, ["n"])])


def halving() -> onnx.ModelProto:
    """x / 2 + x again and again."""
    node = NODE("Loop", ["t", "", "x"], ["y"], body=body(NEXT, *STATE))
    return model([node], [COUNT, X], [("y", FLOAT, ["n"])])


def collecting() -> onnx.ModelProto:
    """All states of `halving`."""
    nodes = [*NEXT, NODE("Identity", ["next"], ["item"])]
    looped = body(nodes, STATE[0], [*STATE[1], ("item", FLOAT, ["n"])])
    node = NODE("Loop", ["t", "", "x"], ["y", "ys"], body=looped)
    return model([node], [COUNT, X], [("y", FLOAT, ["n"]), ("ys", FLOAT, ["t", "n"])])


def feeds(*cases: tuple[int, int]) -> list[Arrays]:
    return [{"t": np.asarray(t, np.int64), "x": normal(n)} for t, n in cases]


@pytest.fixture(scope="module")
def collected() -> Built:
    return build(collecting())


def test_trip_counts_of_any_size() -> None:
    cases = feeds((0, 3), (1, 1), (2, 0), (33, 5), (50_000, 2), (-4, 3))
    assert_like_onnxruntime(halving(), cases)


def test_states_are_collected(collected: Built) -> None:
    session = session_of(collecting())
    for feed in feeds((1, 3), (7, 1), (33, 2), (5, 0), (1009, 7)):
        assert_close(collected.run(feed), session.run(None, dict(feed)), ["y", "ys"])


def test_a_loop_that_does_not_run_collects_nothing(collected: Built) -> None:
    (feed,) = feeds((0, 3))
    y, ys = collected.run(feed)
    np.testing.assert_array_equal(y, feed["x"])
    assert ys.shape == (0, 3)


def test_memory_does_not_grow_with_the_iterations() -> None:
    built = build(halving())
    (few, many) = feeds((1000, 64), (200_000, 64))
    built.run(few)
    before = resident()
    built.run(many)
    assert resident() - before < 4 << 20


def resident() -> int:
    """Bytes of this process that lie in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_a_condition_ends_a_loop_without_a_limit() -> None:
    """Sums until they pass the limit; their number is found on the way."""
    nodes = [
        NODE("Add", ["s", "x"], ["next"]),
        NODE("ReduceSum", ["next"], ["sum"], keepdims=0),
        NODE("Less", ["sum", "limit"], ["again"]),
    ]
    looped = body(nodes, STATE[0], [*STATE[1], ("sum", FLOAT, [])])
    node = NODE("Loop", ["t", "first", "x"], ["y", "sums"], body=looped)
    ended = model(
        [node],
        [COUNT, ("first", BOOL, []), ("limit", FLOAT, []), X],
        [("y", FLOAT, ["n"]), ("sums", FLOAT, ["found"])],
    )
    assert_like_onnxruntime(
        ended,
        [
            {
                "t": np.asarray(t, np.int64),
                "first": np.asarray(first),
                "limit": np.asarray(limit, np.float32),
                "x": np.linspace(0.1, 1, n, dtype=np.float32),
            }
            for t, first, limit, n in (
                (LAST, True, 10.0, 3),
                (LAST, True, 9000.0, 3),
                (LAST, True, 0.0, 2),
                (5, True, 1e9, 2),
                (LAST, False, 1e9, 2),
                (-3, True, 1e9, 2),
            )
        ],
    )


def test_a_loop_in_a_loop() -> None:
    """Each row of the outer loop's output is the whole output of an inner loop."""
    summing = [*NEXT, NODE("ReduceSum", ["next"], ["sum"], keepdims=0)]
    inner = body(summing, STATE[0], [*STATE[1], ("sum", FLOAT, [])])
    nodes = [
        NODE("Loop", ["u", "", "o"], ["end", "row"], body=inner),
        NODE("Neg", ["end"], ["following"]),
    ]
    outer = body(
        nodes,
        [("o", FLOAT, ["n"])],
        [("following", FLOAT, ["n"]), ("row", FLOAT, ["u"])],
        "_outer",
    )
    node = NODE("Loop", ["t", "", "x"], ["y", "rows"], body=outer)
    nested = model(
        [node], [COUNT, ("u", INT, []), X], [("y", FLOAT, ["n"]), ("rows", FLOAT, ["r", "c"])]
    )
    cases = ((3, 2, 4), (0, 3, 2), (2, 0, 3), (1, 1, 1), (40, 37, 7), (3, 2, 0))
    assert_like_onnxruntime(
        nested,
        [
            {"t": np.asarray(t, np.int64), "u": np.asarray(u, np.int64), "x": normal(n)}
            for t, u, n in cases
        ],
    )


def test_a_loop_in_a_branch() -> None:
    then = graph(
        [NODE("Loop", ["t", "", "x"], ["p"], body=body(NEXT, *STATE))], [], [("p", FLOAT, ["n"])]
    )
    other = graph([NODE("Neg", ["x"], ["q"])], [], [("q", FLOAT, ["n"])])
    node = NODE("If", ["f"], ["y"], then_branch=then, else_branch=other)
    chosen = model([node], [("f", BOOL, []), COUNT, X], [("y", FLOAT, ["n"])])
    cases = feeds((3, 4), (3, 2), (0, 3), (20_000, 5))
    assert_like_onnxruntime(
        chosen, [{**feed, "f": np.asarray(f)} for feed in cases for f in (True, False)]
    )


def test_a_state_whose_extents_change() -> None:
    nodes = [
        NODE("Concat", ["s", "x"], ["next"], axis=0),
        NODE("ReduceSum", ["next"], ["sum"], keepdims=0),
    ]
    looped = body(nodes, [("s", FLOAT, ["m"])], [("next", FLOAT, ["k"]), ("sum", FLOAT, [])])
    node = NODE("Loop", ["t", "", "x"], ["y", "sums"], body=looped)
    growing = model([node], [COUNT, X], [("y", FLOAT, ["q"]), ("sums", FLOAT, ["t"])])
    assert_like_onnxruntime(
        growing, feeds((0, 3), (1, 3), (7, 2), (3, 0), (400, 1)), tolerance=1e-3
    )


def test_items_of_extents_that_only_the_body_knows() -> None:
    """The elements of x above a limit, in every iteration the same ones."""
    nodes = [
        *NEXT,
        NODE("Greater", ["x", "half"], ["mask"]),
        NODE("Compress", ["next", "mask"], ["item"], axis=0),
    ]
    looped = body(nodes, STATE[0], [*STATE[1], ("item", FLOAT, ["m"])])
    node = NODE("Loop", ["t", "", "x"], ["y", "items"], body=looped)
    looping = model([node], [COUNT, X], [("y", FLOAT, ["n"]), ("items", FLOAT, ["t", "m"])])
    assert_like_onnxruntime(looping, feeds((1, 9), (40, 17), (100, 5)))


@pytest.mark.parametrize("directions", [[0, 0], [1, 1]])
def test_a_scan_of_any_length(directions: list[int]) -> None:
    """Running sums of two sequences, one of whose items are scalars."""
    row: list[Form] = [("s", FLOAT, [3]), ("a", FLOAT, [3]), ("c", FLOAT, [])]
    nodes = [
        NODE("Mul", ["a", "c"], ["m"]),
        NODE("Add", ["s", "m"], ["next"]),
        NODE("ReduceSum", ["next"], ["sum"], keepdims=0),
        NODE("Neg", ["m"], ["item"]),
    ]
    outputs: list[Form] = [("next", FLOAT, [3]), ("sum", FLOAT, []), ("item", FLOAT, [3])]
    node = NODE(
        "Scan",
        ["first", "x", "w"],
        ["y", "sums", "items"],
        body=graph(nodes, row, outputs),
        num_scan_inputs=2,
        scan_input_directions=directions,
        scan_output_directions=directions,
        scan_output_axes=[0, 1],
    )
    scanned = model(
        [node],
        [("first", FLOAT, [3]), ("x", FLOAT, ["k", 3]), ("w", FLOAT, ["k"])],
        [("y", FLOAT, [3]), ("sums", FLOAT, ["k"]), ("items", FLOAT, [3, "k"])],
    )
    cases = [
        {"first": normal(3), "x": normal(k, 3), "w": normal(k, seed=1)} for k in (1, 2, 37, 4001)
    ]
    assert_like_onnxruntime(scanned, cases, tolerance=1e-3)


def test_two_loops_do_not_share_their_items() -> None:
    """Both start with the same empty stack."""
    nodes = [*NEXT, NODE("Identity", ["next"], ["p"]), NODE("Neg", ["next"], ["q"])]
    looped = body(nodes, STATE[0], [*STATE[1], ("p", FLOAT, ["n"]), ("q", FLOAT, ["n"])])
    first = NODE("Loop", ["t", "", "x"], ["a", "ps", "qs"], body=looped)
    second = NODE("Loop", ["t", "", "a"], ["c", "rs", "ss"], body=looped)
    outputs: list[Form] = [(name, FLOAT, ["t", "n"]) for name in ("ps", "qs", "rs", "ss")]
    shared = model([first, second], [COUNT, X], [("c", FLOAT, ["n"]), *outputs])
    assert_like_onnxruntime(shared, feeds((1, 1), (3, 4), (50, 3)))
