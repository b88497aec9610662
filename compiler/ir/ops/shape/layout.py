"""Operators that move elements without changing them: reshape, transpose, slice, gather, concat and
their kin.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from compiler.errors import ImportFailed
from compiler.ir.graph.buffers import AXIS
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.indices import Indices
from compiler.ir.graph.programs import INJECTIVE
from compiler.ir.graph.values import Known, Tensor, Value
from compiler.ir.ops.shape import caches
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent

INT64_MAX = (1 << 63) - 1
INT_MAX = (1 << 31) - 1


def axis_of(axis: int, rank: int) -> int:
    """A non-negative axis; raises ImportFailed when it is out of range."""
    if not -rank <= axis < max(rank, 1):
        raise ImportFailed(f"axis {axis} is out of range for rank {rank}", reason="axis")
    return axis + rank if axis < 0 else axis


def reshape(b: Builder, x: Value, shape: Sequence[Extent]) -> Value:
    """The same elements in another shape, all of whose extents are given."""
    wanted = b.extents(shape, "reshape")
    if isinstance(x, Known) and all(isinstance(extent, int) for extent in wanted):
        if int(np.prod(wanted)) != x.data.size:
            raise ImportFailed(
                f"{list(x.shape)} cannot be reshaped to {list(wanted)}", reason="shape"
            )
        return Known(x.data.reshape([int(extent) for extent in wanted]), x.dtype)
    if len(wanted) == len(x.shape) and all(
        b.facts.same(have, want) is True for have, want in zip(x.shape, wanted, strict=True)
    ):
        return x
    have, want = b.facts.simplify(ex.prod(x.shape)), b.facts.simplify(ex.prod(wanted))
    if b.facts.same(have, want) is not True:
        b.require(ex.equal(have, want), f"{_show(x.shape)} cannot be reshaped to {_show(wanted)}")
    if want == 0 and isinstance(want, int):
        return _empty(b, wanted, x.dtype)
    return b.emit(
        relax.op.reshape(b.tensor(x).expr, [ex.prim(extent) for extent in wanted]), wanted
    )


def _empty(b: Builder, shape: Sequence[Extent], dtype: str) -> Value:
    """No elements, in a shape that TVM's reshape would not take."""
    return b.te(
        lambda: te.compute(
            [ex.prim(e) for e in shape], lambda *_: tirx.const(0, dtype), name="empty"
        ),
        name="empty",
    )


def transpose(b: Builder, x: Value, axes: Sequence[int]) -> Value:
    """Axes permuted: output axis i is input axis axes[i]."""
    order = [axis_of(axis, len(x.shape)) for axis in axes]
    if order == list(range(len(order))):
        return x
    result = _transposed(b, x, order)
    if order == [1, 0] and x in b.dequantized and (turned := b.dequantized[x].transpose()):
        b.dequantized[result] = turned
    return result


def _transposed(b: Builder, x: Value, order: list[int]) -> Value:
    if isinstance(x, Known):
        return Known(np.ascontiguousarray(x.data.transpose(order)), x.dtype)
    return b.emit(relax.op.permute_dims(b.tensor(x).expr, order), [x.shape[axis] for axis in order])


def unsqueeze(b: Builder, x: Value, axes: Sequence[int]) -> Value:
    """Axes of extent 1 inserted at the positions they have in the result."""
    rank = len(x.shape) + len(axes)
    positions = {axis_of(axis, rank) for axis in axes}
    if len(positions) != len(axes):
        raise ImportFailed(f"axes {list(axes)} repeat", reason="axis")
    rest = iter(x.shape)
    return reshape(b, x, [1 if axis in positions else next(rest) for axis in range(rank)])


def squeeze(b: Builder, x: Value, axes: Sequence[int] | None) -> Value:
    """Axes of extent 1 removed; None removes those that are 1 for certain, and no run may find
    another one 1.
    """
    rank = len(x.shape)
    if axes is None:
        axes = [axis for axis in range(rank) if b.facts.same(x.shape[axis], 1) is True]
        for axis in range(rank):
            if axis not in axes:
                _stays(b, x, axis)
    positions = {axis_of(axis, rank) for axis in axes}
    for axis in positions:
        b.require(
            ex.equal(x.shape[axis], 1), f"axis {axis} of {_show(x.shape)} is squeezed but is not 1"
        )
    return reshape(b, x, [extent for axis, extent in enumerate(x.shape) if axis not in positions])


def _never_one(extent: Extent) -> str:
    """The hint where an extent may be 1 or not."""
    axes = "give Squeeze its axes when exporting, or declare that"
    if isinstance(extent, tirx.Var):
        return f"{axes} {extent} is never 1 (--dim {extent}=2:64) or always (--dim {extent}=1)"
    return f"{axes} the dims of {extent} never make it 1"


def _stays(b: Builder, x: Value, axis: int) -> None:
    """Require an axis not to be 1: refused where a declaration can say so, checked at run time
    where the extent is found on the way.
    """
    extent = x.shape[axis]
    if b.facts.same(extent, 1) is None and not b.facts.is_introduced(extent):
        raise ImportFailed(
            f"squeezing {_show(x.shape)} without axes leaves the rank open",
            reason="shape",
            hint=_never_one(extent),
        )
    b.require(
        ex.not_equal(extent, 1),
        f"axis {axis} of {_show(x.shape)} is 1, and squeezing it would change the rank",
    )


def flatten(b: Builder, x: Value, axis: int) -> Value:
    """A matrix: the product of the extents before `axis` by that of the rest."""
    return reshape(
        b,
        x,
        [
            b.facts.simplify(ex.prod(x.shape[:axis])),
            b.facts.simplify(ex.prod(x.shape[axis:])),
        ],
    )


def concat(b: Builder, values: Sequence[Value], axis: int) -> Value:
    """Values joined along an axis; the other extents must agree."""
    rank = len(values[0].shape)
    axis = axis_of(axis, rank)
    if len(values) == 1:
        return values[0]
    buffer = b.buffers.get(values[0].expr) if isinstance(values[0], Tensor) else None
    if buffer is not None and axis == AXIS and len(values) == 2:
        return caches.grown(b, buffer, values[0].shape[axis], values[1])
    known = [value for value in values if isinstance(value, Known)]
    if len(known) == len(values):
        symbolic = any(value.symbolic for value in known)
        parts = [value.data.astype(object) if symbolic else value.data for value in known]
        return Known.of(np.concatenate(parts, axis), values[0].dtype)
    shape = list(values[0].shape)
    for position in range(rank):
        if position != axis:
            for value in values[1:]:
                shape[position] = b.same(
                    shape[position],
                    value.shape[position],
                    f"concatenated tensors differ on axis {position}",
                )
    shape[axis] = b.facts.simplify(ex.total(value.shape[axis] for value in values))
    restated = []
    for value in values:
        wanted = [*shape[:axis], value.shape[axis], *shape[axis + 1 :]]
        restated.append(b.adopt(b.tensor(value).expr, wanted).expr)
    return b.emit(relax.op.concat(restated, axis), shape)


def take(b: Builder, x: Value, positions: Indices, axis: int) -> Value:
    """Slices of x along an axis at positions of any rank."""
    axis, indices = axis_of(axis, len(x.shape)), positions.value
    if isinstance(x, Known) and isinstance(indices, Known) and not indices.symbolic:
        return Known.of(np.take(x.data, indices.data, axis), x.dtype)
    extent = x.shape[axis]
    if isinstance(indices, Known) and not indices.symbolic and not indices.shape:
        first = b.facts.simplify(ex.add(int(indices.data), extent if indices.data < 0 else 0))
        if b.facts.decide(ex.both(ex.less(first, extent), ex.greater_equal(first, 0))) is True:
            return squeeze(
                b, strided_slice(b, x, axis, first, b.facts.simplify(ex.add(first, 1)), 1), [axis]
            )
    shape = [*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]]
    rank = len(indices.shape)

    def gather(data: te.Tensor, index: te.Tensor) -> te.Tensor:
        def element(*position: Any) -> Any:
            i = positions.address(index(*position[axis : axis + rank]))
            return data(*position[:axis], i, *position[axis + rank :])

        return te.compute([ex.prim(e) for e in shape], element, name="take")

    # TVM calls what reads at computed positions opaque. Of a row it reads an element once, as any
    # copy, so that what copies or changes the rows need not write them down first.
    return b.te(gather, x, indices, name="take", attrs={"op_pattern": INJECTIVE})


def strided_slice(
    b: Builder, x: Value, axis: int, start: Extent, stop: Extent, step: Extent
) -> Value:
    """Python's x[start:stop:step] along one axis, any of the three symbolic, negative values
    counting from the end.
    """
    axis = axis_of(axis, len(x.shape))
    extent = x.shape[axis]
    if isinstance(x, Known) and all(isinstance(v, int) for v in (start, stop, step)):
        slices = (slice(None),) * axis + (slice(*_python_slice(int(start), int(stop), int(step))),)  # type: ignore[arg-type]
        return Known.of(x.data[slices], x.dtype)
    first, count = slice_bounds(b, extent, start, stop, step)
    (count,) = b.extents([count], "slice")
    if b.facts.same(count, extent) is True and b.facts.same(first, 0) is True:
        return x
    shape = [*x.shape[:axis], count, *x.shape[axis + 1 :]]

    def cut(data: te.Tensor) -> te.Tensor:
        def element(*position: Any) -> Any:
            inner = ex.prim(first) + position[axis] * ex.prim(step)
            return data(*position[:axis], inner, *position[axis + 1 :])

        return te.compute([ex.prim(e) for e in shape], element, name="slice")

    return b.te(cut, x, name="slice")


def select(b: Builder, x: Value, axis: int, position: Extent) -> Value:
    """x at one position along an axis, which is removed; the position counts from the first."""
    after = b.facts.simplify(ex.add(position, 1))
    return squeeze(b, strided_slice(b, x, axis, position, after, 1), [axis])


def within(b: Builder, index: Extent, extent: Extent, what: str) -> Extent:
    """An index counted from the first; the program fails where it is out of range for `what`."""
    b.require(
        ex.both(ex.less(index, extent), ex.greater_equal(index, ex.sub(0, extent))),
        f"the index {index} is out of range for {what} of {extent}",
    )
    is_negative = b.facts.decide(ex.less(index, 0))
    if is_negative is None:
        is_negative = ex.less(index, 0)
    return b.facts.simplify(ex.select(is_negative, ex.add(index, extent), index))


def _python_slice(start: int, stop: int, step: int) -> tuple[int | None, int | None, int]:
    """ONNX ends below -extent mean 'from the first element' when stepping back; Python spells that
    None.
    """
    return start, (None if step < 0 and stop < -INT64_MAX // 2 else stop), step


def slice_bounds(
    b: Builder, extent: Extent, start: Extent, stop: Extent, step: Extent
) -> tuple[Extent, Extent]:
    """First index and count of a slice whose bounds are clamped to the axis, as numpy and ONNX
    clamp them.
    """
    f = b.facts
    forward = f.decide(ex.greater(step, 0))
    if forward is None:
        raise ImportFailed(
            "a slice's step has a sign that only run time knows",
            reason="data_dependent",
            hint="fix the step with --const",
        )

    def far(value: Extent) -> bool:
        """True for a bound that means the axis's end: ONNX recommends INT_MAX and INT_MIN for an
        axis of unknown extent.
        """
        value = ex.plain(value)
        beyond = isinstance(value, int) and abs(value) >= INT_MAX
        return beyond and f.decide(ex.greater(extent, INT_MAX)) is not True

    def wrap(value: Extent) -> Extent:
        if far(value):
            return value
        return f.simplify(ex.select(settle(b, ex.less(value, 0)), ex.add(value, extent), value))

    def clamp(value: Extent, low: Extent, high: Extent) -> Extent:
        if far(value):
            return high if ex.plain(value) > 0 else low
        if f.decide(ex.greater_equal(value, low)) is not True:
            value = f.simplify(ex.maximum(value, low))
        if f.decide(ex.less_equal(value, high)) is not True:
            value = f.simplify(ex.minimum(value, high))
        return value

    if forward:
        first, last = clamp(wrap(start), 0, extent), clamp(wrap(stop), 0, extent)
        span = f.simplify(ex.sub(last, first))
        count = ex.ceildiv(span, step)
    else:
        top = f.simplify(ex.sub(extent, 1))
        first, last = (
            clamp(wrap(start), 0 if f.decide(ex.greater(extent, 0)) else -1, top),
            clamp(wrap(stop), -1, top),
        )
        span = f.simplify(ex.sub(first, last))
        count = ex.ceildiv(span, ex.sub(0, step))
    if f.decide(ex.greater_equal(span, 0)) is not True:
        count = ex.maximum(count, 0)
    return f.simplify(first), f.simplify(count)


def settle(b: Builder, condition: Any) -> Any:
    """True or False where the dims decide it, else the condition itself."""
    decided = b.facts.decide(condition)
    return condition if decided is None else decided


def split(b: Builder, x: Value, axis: int, sizes: Sequence[Extent]) -> tuple[Value, ...]:
    """x cut along an axis into consecutive parts of the given extents, whose sum must be the
    axis's.
    """
    axis = axis_of(axis, len(x.shape))
    b.same(
        ex.total(sizes),
        x.shape[axis],
        f"parts {_show(sizes)} do not add up to axis {axis} of {_show(x.shape)}",
    )
    parts, start = [], b.facts.simplify(0)
    for size in sizes:
        stop = b.facts.simplify(ex.add(start, size))
        parts.append(strided_slice(b, x, axis, start, stop, 1))
        start = stop
    return tuple(parts)


def _show(shape: Sequence[Extent]) -> str:
    return "[" + ",".join(str(extent) for extent in shape) + "]"
