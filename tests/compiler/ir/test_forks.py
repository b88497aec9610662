"""Which way undecided branches go, found by trying both."""

from collections.abc import Mapping

import pytest

from compiler.errors import ImportFailed
from compiler.ir.forks import FORKS, RANKS, explore


def rank_error(node: str) -> ImportFailed:
    return ImportFailed("the branches differ in rank", reason=RANKS, node=node)


def contradiction() -> ImportFailed:
    return ImportFailed("no such shape", reason="shape", node="later")


def test_the_way_that_the_rest_of_the_model_can_take_is_taken() -> None:
    seen = []

    def read(assumed: Mapping[str, bool]) -> str:
        seen.append(dict(assumed))
        if "if" not in assumed:
            raise rank_error("if")
        if assumed["if"]:
            raise contradiction()
        return "read"

    assert explore(read) == "read"
    assert seen == [{}, {"if": True}, {"if": False}]


def test_nested_branches_are_tried_inside_of_each_other() -> None:
    def read(assumed: Mapping[str, bool]) -> dict[str, bool]:
        if "outer" not in assumed:
            raise rank_error("outer")
        if not assumed["outer"]:
            raise contradiction()
        if "inner" not in assumed:
            raise rank_error("inner")
        if assumed["inner"]:
            raise contradiction()
        return dict(assumed)

    assert explore(read) == {"outer": True, "inner": False}


@pytest.mark.parametrize("fine", [True, False], ids=["both", "neither"])
def test_where_both_or_neither_can_be_taken_the_node_is_named(fine: bool) -> None:
    def read(assumed: Mapping[str, bool]) -> str:
        if "if" not in assumed:
            raise rank_error("if")
        if not fine:
            raise contradiction()
        return "read"

    with pytest.raises(ImportFailed) as caught:
        explore(read)
    assert caught.value.code == f"import.{RANKS}"
    assert caught.value.failure.node == "if"


def test_a_way_that_fails_for_another_reason_proves_nothing() -> None:
    def read(assumed: Mapping[str, bool]) -> str:
        if "if" not in assumed:
            raise rank_error("if")
        if assumed["if"]:
            raise ImportFailed("no importer", reason="unsupported_op", node="later")
        return "read"

    with pytest.raises(ImportFailed) as caught:
        explore(read)
    assert caught.value.failure.node == "if"


def test_other_failures_leave_at_once() -> None:
    calls = []

    def read(assumed: Mapping[str, bool]) -> str:
        calls.append(assumed)
        raise contradiction()

    with pytest.raises(ImportFailed, match="no such shape"):
        explore(read)
    assert len(calls) == 1


def test_the_number_of_imports_is_bounded() -> None:
    calls = []

    def read(assumed: Mapping[str, bool]) -> str:
        calls.append(assumed)
        raise rank_error(f"if{len(assumed)}")

    with pytest.raises(ImportFailed):
        explore(read)
    assert len(calls) == 2 ** (FORKS + 1) - 1
