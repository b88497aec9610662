"""Messages of run-time checks, found again by their number."""

import tvm
from tvm import relax, tirx

from compiler.ir.graph.checks import FIRST, Checks, messages_of
from compiler.ir.graph.origins import Origins


def function() -> relax.Function:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([2], "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(x)
    return builder.get()["main"]


def test_a_message_has_one_number_however_numbers_in_it_are_printed() -> None:
    checks = Checks()
    first = checks.number("axis 0 of 'x' is n + T.int64(-3)")
    assert checks.number("axis 0 of 'x' is n + -3") == first == FIRST
    assert checks.number("another") == FIRST + 1


def test_a_message_names_the_node_of_its_check() -> None:
    checks = Checks(Origins())
    numbers = []
    for node in ("first", "{second}"):
        with checks.origins.inside(node, f"Gather {node!r}"):
            numbers.append(checks.number("Gather: an index is out of range"))
    assert [checks.messages[str(number)] for number in numbers] == [
        "Gather 'first': an index is out of range",
        "Gather '_second_': an index is out of range",
    ]


def test_a_condition_that_two_nodes_require_is_the_first_ones() -> None:
    checks, n = Checks(Origins()), tirx.Var("n", "int64")
    numbers = []
    for node in ("first", "second"):
        with checks.origins.inside(node, f"Add {node!r}"):
            numbers.append(checks.number("too long", n < 3))
    assert numbers == [FIRST, FIRST]
    assert checks.messages == {str(FIRST): "Add 'first': too long"}
    assert checks.number("too long", n < 4) == FIRST + 1


def test_messages_travel_on_the_function() -> None:
    checks = Checks()
    numbers = {checks.number(text): text for text in ("one", "two")}
    module = tvm.IRModule({"main": checks.attach_to(function())})
    assert messages_of(module) == {str(number): text for number, text in numbers.items()}


def test_a_function_without_checks_is_left_as_it_is() -> None:
    plain = function()
    assert Checks().attach_to(plain).same_as(plain)
    assert messages_of(tvm.IRModule({"main": plain})) == {}
