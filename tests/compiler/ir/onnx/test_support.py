"""Nodes that cannot be imported are named, wherever in the model they stand."""

import onnx
import pytest
from onnx import TensorProto, helper

from compiler.errors import ImportFailed
from compiler.ir.onnx import operators  # noqa: F401  fills the registry
from compiler.ir.onnx.support import SHOWN, check, lacks

X = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])
OPSETS = [helper.make_opsetid("", 19), helper.make_opsetid("own", 1)]
CONDITION = helper.make_tensor_value_info("c", TensorProto.BOOL, [])


def model(
    *nodes: onnx.NodeProto, functions: tuple[onnx.FunctionProto, ...] = ()
) -> onnx.ModelProto:
    outputs = [helper.make_empty_tensor_value_info(nodes[-1].output[0])]
    graph = helper.make_graph(list(nodes), "g", [X, CONDITION], outputs)
    return helper.make_model(graph, opset_imports=OPSETS, functions=list(functions))


def test_a_model_of_known_operators_lacks_nothing() -> None:
    proto = model(helper.make_node("Relu", ["x"], ["y"]))
    assert lacks(proto) == []
    check(proto)


def test_an_operator_inside_of_a_branch() -> None:
    inner = helper.make_graph(
        [helper.make_node("Nonsense", ["x"], ["inside"], domain="own", name="deep")],
        "branch",
        [],
        [helper.make_empty_tensor_value_info("inside")],
    )
    node = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    (lack,) = lacks(model(node))
    assert (lack.node, lack.op) == ("deep", "own.Nonsense")
    assert lack.why == "no importer for own.Nonsense at opset 1"


def test_a_refused_operator_says_why() -> None:
    (lack,) = lacks(model(helper.make_node("TfIdfVectorizer", ["x"], ["y"], name="words")))
    assert lack.why.startswith("counting n-grams is not supported")


def function(op: str, domain: str = "") -> onnx.FunctionProto:
    nodes = [helper.make_node(op, ["a"], ["b"], domain=domain)]
    return helper.make_function("own", "Mine", ["a"], ["b"], nodes, OPSETS)


CALL = helper.make_node("Mine", ["x"], ["y"], domain="own", name="call")


def test_a_function_is_as_good_as_its_body() -> None:
    assert lacks(model(CALL, functions=(function("Relu"),))) == []
    (lack,) = lacks(model(CALL, functions=(function("TfIdfVectorizer"),)))
    assert (lack.node, lack.op) == ("call", "own.Mine")
    assert lack.why.startswith("its body needs TfIdfVectorizer: counting n-grams")


def test_a_function_that_calls_itself_is_not_walked_for_ever() -> None:
    (lack,) = lacks(model(CALL, functions=(function("Mine", "own"),)))
    assert "its body needs own.Mine" in lack.why


def test_the_error_carries_every_node_and_shows_the_first_ones() -> None:
    nodes = [
        helper.make_node("Nonsense", ["x"], [f"y{index}"], domain="own", name=f"n{index}")
        for index in range(SHOWN + 3)
    ]
    with pytest.raises(ImportFailed, match=f"{SHOWN + 3} nodes are not supported") as caught:
        check(model(*nodes))
    failure = caught.value.failure
    assert (failure.code, failure.node, failure.op) == (
        "import.unsupported_op",
        "n0",
        "own.Nonsense",
    )
    assert len(failure.details["unsupported"]) == SHOWN + 3
    assert failure.message.endswith("; and 3 more")
