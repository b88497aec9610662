"""Views by strides, of tensors that are known to lie in memory in their order, and where tensors
begin.
"""

from __future__ import annotations

from typing import Any

from tvm import te

from compiler.ir.aten.memory import Step
from compiler.ir.aten.node import Node
from compiler.ir.aten.registry import op, view
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex


@view("as_strided")
def as_strided(b: Builder, node: Node) -> Step:
    """Elements of memory by an offset and a step for each axis; only of the caller's own tensors,
    as how others lie in memory is not known.
    """
    source = node.ref(node.names[0])
    if source.steps or not source.cell.in_order:
        node.fail(
            "how this tensor lies in memory is not known",
            reason="unsupported_form",
            hint="write it with views, slices and unfold, or apply as_strided to an input",
        )
    sizes, strides = node.sizes("size"), node.extents("stride")
    offset = node.extent("storage_offset") if node.has("storage_offset") else 0
    count = b.facts.simplify(ex.prod(node.memory.read(source).shape))
    last = ex.total(
        ex.mul(ex.sub(size, 1), step) for size, step in zip(sizes, strides, strict=True)
    )
    b.require(
        ex.either(ex.less_equal(ex.prod(sizes), 0), ex.less(ex.add(offset, last), count)),
        f"as_strided reads past the {count} elements of its tensor",
    )
    extents = [ex.prim(size) for size in sizes]

    def step(b: Builder, x: Value) -> Value:
        def element(data: Any, index: Any) -> Any:
            position = ex.prim(offset)
            for i, stride in zip(index, strides, strict=True):
                position = position + i * ex.prim(stride)
            return data(position)

        return b.te(
            lambda data: te.compute(extents, lambda *i: element(data, i), name="as_strided"),
            layout.reshape(b, x, [count]),
            name="as_strided",
        )

    return step


@op("sym_storage_offset")
def storage_offset(b: Builder, node: Node) -> int:
    """Where a tensor begins in memory: an input at 0. Of views torch.export asserts that it is not
    negative, which holds of all.
    """
    source = node.ref("self")
    (offset,) = node.raw.outputs()
    is_input = source.cell.in_order and not source.steps
    if not is_input and not all(map(_asserts_nonnegative, offset.uses())):
        node.fail(
            "where a view begins in memory is not known",
            reason="unsupported_form",
            hint="leave storage_offset() out of the model",
        )
    return 0


def _asserts_nonnegative(user: Any) -> bool:
    """True for an assertion, or a comparison with 0 that assertions alone read."""
    # A program of torch.export counts what reads a comparison among what reads its sides.
    if user.kind() == "aten::_assert_scalar":
        return True
    if user.kind() != "aten::ge" or list(user.inputs())[1].toIValue() != 0:
        return False
    (result,) = user.outputs()
    return all(reader.kind() == "aten::_assert_scalar" for reader in result.uses())
