"""Operators whose result shares memory with their argument, and those that may."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te

from compiler.ir.aten.memory import Ref, Step
from compiler.ir.aten.node import Node
from compiler.ir.aten.registry import op, view
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.ops.pointwise import broadcast
from compiler.ir.ops.quantized import dequantized
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent


def resolve_shape(
    b: Builder, node: Node, have: Sequence[Extent], wanted: Sequence[Extent]
) -> list[Extent]:
    """A target shape with the extent of its -1."""
    sizes = [b.facts.simplify(size) for size in wanted]
    if sizes.count(-1) == 0:
        return sizes
    if sizes.count(-1) > 1:
        node.fail("more than one size is -1", reason="shape")
    rest = b.facts.simplify(
        ex.prod(size for size in sizes if not (isinstance(size, int) and size == -1))
    )
    if b.facts.same(rest, 0) is True:
        node.fail("a size of -1 beside a size of 0 is ambiguous", reason="shape")
    total = b.facts.simplify(ex.prod(have))
    divisor = rest if b.facts.decide(ex.greater_equal(rest, 1)) is True else ex.maximum(rest, 1)
    left = b.facts.simplify(ex.floordiv(total, divisor))
    return [left if isinstance(size, int) and size == -1 else size for size in sizes]


def _target(b: Builder, node: Node, name: str) -> list[Extent]:
    """The shape that an argument of a reshape asks for, with a -1 that import knows worked out, and
    one that only a run knows.
    """
    have, wanted = node.value("self").shape, node.extents(name)
    node.limit(name, 0)
    if -1 in [b.facts.simplify(size) for size in wanted]:
        return resolve_shape(b, node, have, [node.as_size(size, name) for size in wanted])
    sizes: list[Extent] = []
    for axis, size in enumerate(wanted):
        if not b.facts.is_nonnegative(size):
            rest = ex.prod([*wanted[:axis], *wanted[axis + 1 :]])
            left = ex.floordiv(ex.prod(have), ex.maximum(rest, 1))
            size = ex.select(ex.equal(size, -1), left, size)
        sizes.append(b.facts.simplify(node.as_size(size, name)))
    return sizes


def _to(shape: Sequence[Extent]) -> Step:
    return lambda b, x: layout.reshape(b, x, shape)


@view("view", "_unsafe_view", "view_as")
def reshaped_view(b: Builder, node: Node) -> Step:
    """The same elements in another shape."""
    x = node.value("self")
    if "dtype" in node.names:
        node.fail("a view of another dtype is not supported", reason="unsupported_form")
    if "other" in node.names:
        return _to(resolve_shape(b, node, x.shape, list(node.value("other").shape)))
    return _to(_target(b, node, "size"))


@op("reshape", "reshape_as")
def reshape(b: Builder, node: Node) -> Ref:
    """The same elements in another shape; whether it is a view depends on strides."""
    x = node.value("self")
    if "other" in node.names:
        return _maybe(
            b, node, _to(resolve_shape(b, node, x.shape, list(node.value("other").shape)))
        )
    return _maybe(b, node, _to(_target(b, node, "shape")))


@op("ravel")
def ravel(b: Builder, node: Node) -> Ref:
    """All elements in a vector."""
    return _maybe(b, node, _to([b.facts.simplify(ex.prod(node.value("self").shape))]))


@op("flatten")
def flatten(b: Builder, node: Node) -> Ref:
    """Axes start_dim to end_dim made one."""
    x = node.value("self")
    start, end = node.axis("start_dim", len(x.shape), 0), node.axis("end_dim", len(x.shape), -1)
    merged = b.facts.simplify(ex.prod(x.shape[start : end + 1]))
    return _maybe(b, node, _to([*x.shape[:start], merged, *x.shape[end + 1 :]]))


@op("contiguous")
def contiguous(b: Builder, node: Node) -> Ref:
    """Self, or a copy of it whose elements lie in order."""
    return _maybe(b, node, lambda _, x: x)


def _maybe(b: Builder, node: Node, step: Step) -> Ref:
    source = node.ref("self")
    return node.memory.relate(source, step(b, node.memory.read(source)))


@view("unflatten")
def unflatten(b: Builder, node: Node) -> Step:
    """One axis split into several."""
    x = node.value("self")
    axis = node.axis("dim", len(x.shape))
    sizes = resolve_shape(b, node, [x.shape[axis]], node.sizes("sizes"))
    return _to([*x.shape[:axis], *sizes, *x.shape[axis + 1 :]])


@view("unsqueeze")
def unsqueeze(b: Builder, node: Node) -> Step:
    """An axis of 1 inserted."""
    axis = node.axis("dim", len(node.value("self").shape) + 1)
    return lambda b, x: layout.unsqueeze(b, x, [axis])


@view("atleast_1d", "atleast_2d", "atleast_3d")
def atleast(b: Builder, node: Node) -> Step:
    """Axes of 1 added in front, and behind a matrix that needs three."""
    x, wanted = node.value("self"), int(node.kind[-2])
    rank = len(x.shape)
    if wanted == 3 and 0 < rank < 3:
        return _to([1, *x.shape, 1] if rank == 1 else [*x.shape, 1])
    return _to([*[1] * (wanted - rank), *x.shape])


@view("squeeze")
def squeeze(b: Builder, node: Node) -> Step:
    """Axes of 1 removed: all, or those named that are 1."""
    x = node.value("self")
    named = (
        [node.as_axis(axis, len(x.shape)) for axis in node.ints("dim")]
        if "dim" in node.names
        else list(range(len(x.shape)))
    )
    axes = [axis for axis in named if x.shape and _is_one(b, node, x.shape[axis])]
    return lambda b, x: layout.squeeze(b, x, axes)


def _is_one(b: Builder, node: Node, extent: Extent) -> bool:
    decided = b.facts.same(extent, 1)
    if decided is None:
        node.fail(
            f"squeezing an axis of {extent} leaves the rank open",
            reason="unknown_rank",
            hint="declare the dim's min as 2, or fix it to 1",
        )
    return decided


def _permuted(order: Sequence[int]) -> Step:
    return lambda b, x: layout.transpose(b, x, order)


@view("transpose", "swapaxes", "swapdims")
def transpose(b: Builder, node: Node) -> Step:
    """Two axes exchanged."""
    rank = len(node.value("self").shape)
    one, other = (node.as_axis(node.as_extent(node.args[i], "dim"), rank) for i in (1, 2))  # type: ignore[arg-type]
    order = list(range(rank))
    if rank:
        order[one], order[other] = other, one
    return _permuted(order)


@view("permute")
def permute(b: Builder, node: Node) -> Step:
    """Axes in another order."""
    rank = len(node.value("self").shape)
    return _permuted([node.as_axis(axis, rank) for axis in node.ints("dims")])


@view("t", "numpy_T", "mT")
def matrix_transpose(b: Builder, node: Node) -> Step:
    """The last two axes exchanged, of a matrix; of fewer axes, nothing."""
    rank = len(node.value("self").shape)
    order = list(range(rank))
    if rank >= 2:
        order = [*order[:-2], rank - 1, rank - 2] if node.kind != "aten::numpy_T" else order[::-1]
    return _permuted(order)


@view("movedim", "moveaxis")
def movedim(b: Builder, node: Node) -> Step:
    """Axes moved to other positions, the rest in order."""
    rank = len(node.value("self").shape)
    source, target = (
        [node.as_axis(axis, rank) for axis in node.ints(name)] for name in ("source", "destination")
    )
    rest = iter(axis for axis in range(rank) if axis not in source)
    return _permuted(
        [source[target.index(index)] if index in target else next(rest) for index in range(rank)]
    )


@view("expand", "broadcast_to", "expand_as")
def expand(b: Builder, node: Node) -> Step:
    """Broadcast to a shape; -1 keeps an axis."""
    x = node.value("self")
    wanted = list(node.value("other").shape) if "other" in node.names else node.extents("size")
    lead = len(wanted) - len(x.shape)
    node.limit("size", 0)
    sizes = [*[None] * lead, *x.shape]
    shape = [_expanded(node, size, have) for size, have in zip(wanted, sizes, strict=True)]
    for have, want in zip(x.shape, shape[lead:], strict=True):
        if b.facts.same(have, want) is not True and b.facts.same(have, 1) is not True:
            b.require(
                ex.either(ex.equal(have, want), ex.equal(have, 1)),
                f"an axis of {have} cannot be expanded to {want}",
            )
    return lambda b, x: broadcast.expand(b, x, shape)


def _expanded(node: Node, size: Extent, have: Extent | None) -> Extent:
    """The extent that an axis of `have` elements, None for a new one, is expanded to."""
    if have is None or node.builder.facts.is_nonnegative(size):
        return node.as_size(size, "size")
    return node.as_size(ex.select(ex.equal(size, -1), have, size), "size")


@view("select")
def select(b: Builder, node: Node) -> Step:
    """One index along an axis, which is removed."""
    x = node.value("self")
    axis, index = node.axis("dim", len(x.shape)), node.extent("index")
    first = layout.within(b, index, x.shape[axis], "an axis")
    return lambda b, x: layout.select(b, x, axis, first)


@view("slice")
def slice_axis(b: Builder, node: Node) -> Step:
    """start to end along an axis in steps, both clamped to the axis."""
    x = node.value("self")
    axis = node.axis("dim", len(x.shape), 0)
    start = node.position("start") if node.has("start") else 0
    end = node.position("end") if node.has("end") else layout.INT64_MAX
    step = node.extent("step", 1)
    return lambda b, x: layout.strided_slice(b, x, axis, start, end, step)


@op("narrow_copy")
def copy_subrange(b: Builder, node: Node) -> Value:
    """A copy of what narrow gives."""
    return subrange(b, node)(b, node.value("self"))


@view("narrow")
def subrange(b: Builder, node: Node) -> Step:
    """`length` elements from `start` along an axis."""
    x = node.value("self")
    axis, start, length = (
        node.axis("dim", len(x.shape)),
        node.extent("start"),
        node.size("length"),
    )
    negative = b.facts.decide(ex.less(start, 0))
    if negative is not False:
        wrapped = ex.add(start, x.shape[axis])
        start = b.facts.simplify(
            wrapped if negative else ex.select(ex.less(start, 0), wrapped, start)
        )
        b.require(ex.greater_equal(start, 0), f"{start} lies before an axis of {x.shape[axis]}")
    end = b.facts.simplify(ex.add(start, length))
    b.require(
        ex.less_equal(end, x.shape[axis]),
        f"{length} elements from {start} exceed an axis of {x.shape[axis]}",
    )
    return lambda b, x: layout.strided_slice(b, x, axis, start, end, 1)


@view("diagonal")
def diagonal(b: Builder, node: Node) -> Step:
    """The diagonal of two axes as a new last axis."""
    x = node.value("self")
    return diagonal_of(
        b,
        x,
        node.int("offset", 0),
        node.axis("dim1", len(x.shape), 0),
        node.axis("dim2", len(x.shape), 1),
    )


def diagonal_of(b: Builder, x: Value, offset: int, row: int, column: int) -> Step:
    """`diagonal` of two axes of a value."""
    rows, columns = (
        ex.add(x.shape[row], min(offset, 0)),
        ex.sub(x.shape[column], max(offset, 0)),
    )
    (count,) = b.extents([ex.maximum(ex.minimum(rows, columns), 0)], "diagonal")
    others = [axis for axis in range(len(x.shape)) if axis not in (row, column)]
    shape = [*(x.shape[axis] for axis in others), count]

    def step(b: Builder, x: Value) -> Value:
        def element(data: te.Tensor, index: Sequence[Any]) -> Any:
            point = dict(zip(others, index[:-1], strict=True))
            point[row], point[column] = (
                index[-1] + max(-offset, 0),
                index[-1] + max(offset, 0),
            )
            return data(*(point[axis] for axis in range(len(x.shape))))

        return b.te(
            lambda data: te.compute(
                [ex.prim(e) for e in shape], lambda *i: element(data, i), name="diagonal"
            ),
            x,
            name="diagonal",
        )

    return step


@view("unfold")
def unfold(b: Builder, node: Node) -> Step:
    """Windows of `size` elements along an axis, `step` apart, as a new last axis."""
    x = node.value("self")
    axis, size, stride = (
        node.axis("dimension", len(x.shape)),
        node.size("size"),
        node.size("step"),
    )
    if not x.shape:
        return lambda b, x: layout.strided_slice(b, layout.reshape(b, x, [1]), 0, 0, size, 1)
    b.require(ex.greater_equal(stride, 1), f"windows are {stride} elements apart")
    b.require(
        ex.less_equal(size, x.shape[axis]),
        f"a window of {size} does not fit an axis of {x.shape[axis]}",
    )
    # Extents are computed before what a run checks, so that 0 must not divide.
    apart = ex.maximum(stride, 1)
    count: Extent = ex.add(ex.floordiv(ex.sub(x.shape[axis], size), apart), 1)
    # FuseTIR refuses a shape that divides by a dim.
    count = b.facts.simplify(count) if isinstance(stride, int) else b.symbol(count, "windows")
    shape = [*x.shape[:axis], count, *x.shape[axis + 1 :], size]

    def compute(data: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            return data(*i[:axis], i[axis] * ex.prim(stride) + i[-1], *i[axis + 1 : -1])

        return te.compute([ex.prim(e) for e in shape], element, name="unfold")

    return lambda b, x: b.te(compute, x, name="unfold")


@view("alias", "detach", "detach_", "positive", "lift_fresh", "requires_grad_", "view_as_real_copy")
def alias(b: Builder, node: Node) -> Step:
    """Self."""
    return lambda b, x: x


@op("clone", "detach_copy", "lift_fresh_copy")
def clone(b: Builder, node: Node) -> Value:
    """A copy."""
    return node.value("self")


@op("to", "type_as", "_autocast_to_reduced_precision", "_autocast_to_full_precision")
def to(b: Builder, node: Node) -> Any:
    """Another dtype, which makes a copy; of the same dtype and device, self."""
    x = node.value("self")
    if node.kind.startswith("aten::_autocast"):
        return node.ref("self")
    dtype = node.value("other").dtype if "other" in node.names else node.dtype("dtype", x.dtype)
    if dtype == x.dtype and not (node.has("copy") and node.bool("copy")):
        return node.ref("self")
    return dequantized.cast(b, x, dtype)
