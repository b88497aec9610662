"""Low-rank adapters of decoders, by the functions that the graphs of decoders bring."""

from typing import Any

from compiler.ir.decoders.adapter_functions import DOMAIN, INDEX, MOST_PARTS, add_name, functions
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.onnx.indices import limit_values
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.registry import op
from compiler.ir.ops.math.low_rank import Choice, Part, add_low_rank
from compiler.ir.ops.shape import indexing
from compiler.ir.shapes import extents as ex


@op(INDEX, domain=DOMAIN)
def adapter_index(b: Builder, node: Node) -> Value:
    """The numbers of adapters, from 0 to their count, which every run checks."""
    _require_own(node)
    index, count = node.value(0), node.value(1).shape[0]
    if index.dtype != "int32" or len(index.shape) != 1:
        node.fail("the numbers of adapters are no int32 [batch]", reason="shape")
    limit_values(b, node, 0, 0, count)
    limit = b.facts.simplify(ex.add(count, 1))
    message = f"the number of an adapter is negative or exceeds their count, {count}"
    indexing.check_within(b, index, 0, limit, message)
    return index


@op(*(add_name(parts) for parts in range(1, MOST_PARTS + 1)), domain=DOMAIN)
def add_adapters(b: Builder, node: Node) -> Value:
    """The base plus what each entry's adapter adds."""
    _require_own(node)
    base, x, index, ranks = (node.value(number) for number in range(4))
    each = zip(*(node.attr(name) for name in ("starts", "scales", "modules")), strict=True)
    parts = [
        Part(node.value(4 + 2 * number), node.value(5 + 2 * number), *settings)
        for number, settings in enumerate(each)
    ]
    if [len(value.shape) for value in (base, x, index, ranks)] != [3, 3, 1, 2]:
        node.fail("base and x are not [batch, rows, columns]", reason="shape")
    for axis in (0, 1):
        b.same(base.shape[axis], x.shape[axis], "base and x have other rows")
    b.same(base.shape[0], index.shape[0], "there is no number of an adapter for each entry")
    for part in parts:
        _check_part(node, part, base, x)
        b.same(ranks.shape[0], part.down.shape[0], "there are no ranks for each adapter")
    modules = ex.plain(ranks.shape[1])
    if not isinstance(modules, int) or not all(0 <= part.module < modules for part in parts):
        node.fail("there is no rank for each module", reason="shape")
    limit_values(b, node, 3, 0, max(part.sizes[1] for part in parts))
    floats = [base, x, *(stack for part in parts for stack in (part.down, part.up))]
    integers = {index.dtype, ranks.dtype}
    if integers != {"int32"} or any(value.dtype != "float32" for value in floats):
        node.fail("adapters are float32, and their numbers int32", reason="dtype")
    return add_low_rank(b, base, x, Choice(index, ranks), parts)


def _check_part(node: Node, part: Part, base: Value, x: Value) -> None:
    """Fail for stacks whose sizes are no numbers, or do not fit what they multiply."""
    down, up = part.down.shape, part.up.shape
    fixed: list[Any] = [*down[1:], *up[1:], base.shape[2], x.shape[2]]
    if len(down) != 3 or len(up) != 3 or not all(isinstance(ex.plain(e), int) for e in fixed):
        node.fail("the sizes of adapters are no numbers", reason="shape")
    rank, depth, inner, width, columns, deep = (int(ex.plain(extent)) for extent in fixed)
    node.builder.same(down[0], up[0], "there are more halves of adapters than others")
    if depth != deep or rank != inner or not 0 <= part.start <= columns - width:
        node.fail("adapters do not fit what they multiply and are added to", reason="shape")
    if rank < 1:
        node.fail("the rank is 0", reason="shape")


def _require_own(node: Node) -> None:
    """Fail for a function of this name that computes something else."""
    name = node.proto.op_type
    function = node.scope.model.functions.get((DOMAIN, name, ""))
    if function is None or function.SerializeToString() != functions()[name].SerializeToString():
        node.fail(f"{DOMAIN}.{name} is another function than this release has")
