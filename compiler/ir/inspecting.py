"""The parts of the documents that describe models: for `relaxd inspect`."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from compiler.errors import CompileError

if TYPE_CHECKING:
    from compiler.ir.imported import Imported

T = TypeVar("T")
Document = dict[str, Any]


def attempt(read: Callable[[], T]) -> tuple[T | None, Document | None]:
    """The result of `read`, or the failure that it raises as CompileError."""
    try:
        return read(), None
    except CompileError as error:
        return None, error.failure.to_json()


def describe_node(
    label: str, op: str, why: str | None, shapes: Mapping[str, list[str]], error: Document | None
) -> Document:
    """A node: its `op`, whether it is `supported`, `why` not, its `outputs` if they are known.

    why: what no import takes; shapes: of outputs, by node; error: of the import, which may name
    the node.
    """
    if why is None and error is not None and error.get("node") == label:
        why = error["message"]
    node = {"node": label, "op": op, "supported": why is None}
    node |= {} if why is None else {"why": why}
    return node | ({"outputs": shapes[label]} if label in shapes else {})


def describe_interface(
    imported: "Imported | None", inputs: Sequence[str], outputs: Sequence[str]
) -> Document:
    """The `inputs`, `outputs` and `dims` of an import; where there is none, the given names."""
    if imported is None:
        return {"inputs": list(inputs), "outputs": list(outputs), "dims": {}}
    return {
        "inputs": [spec.to_json() for spec in imported.inputs],
        "outputs": [spec.to_json() for spec in imported.outputs],
        "dims": {dim.name: dim.to_json() for dim in imported.dims},
    }


def count_operators(nodes: Sequence[Document]) -> dict[str, int]:
    """How many nodes have each operator, by name."""
    return dict(sorted(Counter(node["op"] for node in nodes).items()))
