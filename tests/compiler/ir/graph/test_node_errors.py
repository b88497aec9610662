"""Foreign errors in a handler become errors of the node."""

import pytest

from compiler.errors import ImportFailed
from compiler.ir.graph.node_errors import NodeErrors
from compiler.ir.graph.origins import Origins


class Node(NodeErrors):
    label = "n"
    op = "Range"
    origins = Origins()

    def describe_inputs(self) -> list[str]:
        return []


def test_an_error_of_a_library_names_the_node() -> None:
    with pytest.raises(ImportFailed) as caught, Node().naming_errors():
        raise ValueError("odd")
    assert (caught.value.code, caught.value.failure.node) == ("import.internal", "n")


@pytest.mark.parametrize("error", [MemoryError("256 GiB"), RuntimeError("std::bad_alloc")])
def test_memory_that_runs_out_is_not_the_nodes_fault(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, Node().naming_errors():
        raise error
    assert caught.value is error
