"""Dataflow blocks end where a run-time value becomes a dim."""

import numpy as np
from onnx import helper
from tvm import relax

from tests.compiler.ir.onnx.running import assert_close, build, model_of, normal

NODE = helper.make_node


def test_a_program_over_a_new_dim_is_not_fused_to_before_it() -> None:
    nodes = [
        NODE("Mul", ["n", "n"], ["square"]),
        NODE("Range", ["zero", "n", "one"], ["steps"]),
        NODE("Mul", ["steps", "square"], ["y"]),
    ]
    constants = {"zero": np.array(0, np.float32), "one": np.array(1, np.float32)}
    built = build(model_of(nodes, {"n": "float32[]"}, constants, outputs=["y"]))
    for count in (0, 1, 5):
        n = np.array(count, np.float32)
        assert_close(built.run({"n": n}), [np.arange(count, dtype=np.float32) * n * n], ["y"], 0)


def test_blocks_are_cut_only_where_a_dim_is_defined() -> None:
    def kinds(nodes: list[object], inputs: dict[str, str]) -> list[bool]:
        body = build(model_of(nodes, inputs)).imported.module["main"].body
        return [isinstance(block, relax.DataflowBlock) for block in body.blocks]

    assert kinds([NODE("Add", ["x", "y"], ["z"])], {"x": "float32[n]", "y": "float32[n]"}) == [True]
    assert kinds([NODE("NonZero", ["x"], ["z"])], {"x": "float32[n]"}) == [True, False, True]


def test_values_from_both_sides_of_a_cut() -> None:
    nodes = [
        NODE("Abs", ["x"], ["a"]),
        NODE("Compress", ["a", "keep"], ["kept"]),
        NODE("Add", ["kept", "x0"], ["y"]),
        NODE("Neg", ["a"], ["b"]),
    ]
    built = build(
        model_of(
            nodes, {"x": "float32[n]", "keep": "bool[n]", "x0": "float32[1]"}, outputs=["y", "b"]
        )
    )
    x, keep, x0 = normal(7), np.arange(7) % 3 == 0, normal(1, seed=1)
    assert_close(
        built.run({"x": x, "keep": keep, "x0": x0}),
        [np.abs(x)[keep] + x0, -np.abs(x)],
        ["y", "b"],
        1e-6,
    )


def test_rows_taken_by_two_masks_and_added_where_they_were() -> None:
    """Routing as a mixture of experts does it: each expert's rows are a dim of its own, of no rows
    too.
    """
    nodes = []
    for expert in ("p", "q"):
        nodes += [
            NODE("Equal", ["choice", f"{expert}_index"], [f"{expert}_mask"]),
            NODE("NonZero", [f"{expert}_mask"], [f"{expert}_places"]),
            NODE("Transpose", [f"{expert}_places"], [f"{expert}_rows"], perm=[1, 0]),
            NODE("GatherND", ["x", f"{expert}_rows"], [f"{expert}_taken"]),
            NODE("MatMul", [f"{expert}_taken", f"{expert}_weight"], [f"{expert}_product"]),
            NODE("Tanh", [f"{expert}_product"], [f"{expert}_made"]),
        ]
    nodes += [
        NODE("ScatterND", ["x", "p_rows", "p_made"], ["half"], reduction="add"),
        NODE("ScatterND", ["half", "q_rows", "q_made"], ["y"], reduction="add"),
    ]
    weights = {f"{expert}_weight": normal(8, 8, seed=seed) for seed, expert in enumerate("pq")}
    constants = {"p_index": np.array(0), "q_index": np.array(1), **weights}
    built = build(
        model_of(nodes, {"x": "float32[n,8]", "choice": "int64[n]"}, constants, outputs=["y"])
    )
    for choice in ([0], [1, 1], [0, 1, 2, 1, 0, 0, 2], [2, 2, 2]):
        x, chosen = normal(len(choice), 8), np.array(choice)
        want = x.copy()
        for index, expert in enumerate("pq"):
            want[chosen == index] += np.tanh(x[chosen == index] @ weights[f"{expert}_weight"])
        assert_close(built.run({"x": x, "choice": chosen}), [want], ["y"], 1e-5)
