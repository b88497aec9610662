"""Values that nodes take and give, subgraphs included."""

import onnx

from compiler.ir.onnx.model.nodes import Graph


def graph_of(text: str) -> Graph:
    header = '<ir_version: 9, opset_import: ["": 17]>'
    return Graph(onnx.parser.parse_model(f"{header} g {text}"), {})


def test_values_that_a_subgraph_captures_are_taken() -> None:
    graph = graph_of(
        """(bool c, float[n] x, float[n] z) => (float[n] y) <float[1] w = {2}> {
            a = Tanh(x)
            y = If(c) <
                then_branch = t () => (float[n] u) { b = Mul(a, w) u = Add(b, z) },
                else_branch = e () => (float[n] v) { v = Identity(x) }
            >
        }"""
    )
    assert graph.takes == (("x",), ("c", "a", "w", "z", "x"))
    assert graph.inputs_of(frozenset({1})) == ("c", "a", "z", "x")
    assert graph.behind(["y"]) == {0, 1}
    assert graph.behind(["y"], frozenset({1})) == {1}


def test_shapes_and_constants_are_bookkeeping_and_random_numbers_are_not() -> None:
    graph = graph_of(
        """(float[n, 4] x) => (float[n, 4] y) <float[4] w = {1, 2, 3, 4}> {
            s = Shape(x)
            c = ConstantOfShape(s)
            v = Neg(w)
            r = RandomNormal<shape = [4]>()
            a = Sum(x, c, v, r)
            t = Shape(a)
            y = Reshape(a, t)
        }"""
    )
    named = {graph.op(index) for index in graph.bookkeeping}
    assert named == {"Shape", "ConstantOfShape", "Neg"}
    assert graph.complete({6}) == {5, 6}
    assert graph.inputs_of(frozenset({4})) == ("x", "c", "v", "r")
