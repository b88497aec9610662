"""Branches that a value or an extent decides."""

from onnx import helper

from tests.fuzz.draft import Draft
from tests.fuzz.registry import operator


@operator(0.5)
def branch(draft: Draft) -> None:
    """If, decided by how long an axis is, over two functions of what both see."""
    x = draft.pick()
    axis = draft.axis(x)
    size = draft.node("Shape", [x.name], start=axis, end=axis + 1)[0]
    edge = draft.constant([draft.choose((2, 16, 17))], "int64")
    longer = draft.node("Greater", [size, edge])[0]
    alone = draft.constant([], "int64")
    decided = draft.node("Reshape", [longer, alone])[0]
    graphs = []
    for op in ("Tanh", "Neg"):
        name = draft.fresh("b")
        node = helper.make_node(op, [x.name], [name], name)
        graphs.append(
            helper.make_graph([node], name, [], [helper.make_empty_tensor_value_info(name)])
        )
    draft.apply("If", [decided], x.shape, then_branch=graphs[0], else_branch=graphs[1])
