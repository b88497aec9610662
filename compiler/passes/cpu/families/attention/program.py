"""softmax(q @ k, changed elementwise) @ v as a tensor program in TE, which reads q, k and v through
views.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tvm import te, tirx

from compiler.passes.cpu.shared.bfloats import cast_to_bfloat16
from compiler.tir import byte_rows

STAGES = tuple(
    f"attention_{name}"
    for name in ("scores", "changed", "greatest", "powers", "total", "summed", "output")
)
"""Names of the program's stages, by which the kernel is found."""

STEADY = "attention_steady_output"
"""The last stage's name where a query's result may not depend on how many queries there are."""

CHANGES: dict[str, Callable[..., Any]] = {
    "relax.add": lambda a, b: a + b,
    "relax.subtract": lambda a, b: a - b,
    "relax.multiply": lambda a, b: a * b,
    "relax.divide": lambda a, b: a / b,
    "relax.maximum": tirx.max,
    "relax.minimum": tirx.min,
    "relax.where": lambda a, b, c: tirx.Select(a, b, c),
    "relax.tanh": tirx.tanh,
}
"""The operators that may change scores between the first matmul and the softmax."""


@dataclass(frozen=True)
class AxisAccess:
    """The positions that a view reads along one axis of its tensor: from `first` on along `axis`
    of the view, or `first` alone if `axis` is None.

    count: the extent, an expression of dims where only a run knows it, None for all of the tensor's
    axis; times: how often the view repeats each position in a row.
    """

    axis: int | None
    first: int = 0
    count: Any = None
    times: int = 1

    def index(self, indices: Sequence[Any]) -> Any:
        """The index along the axis for `indices` of the view."""
        moved = tirx.IntImm("int64", 0) if self.axis is None else indices[self.axis]
        if self.times > 1:
            moved = tirx.floordiv(moved, tirx.IntImm("int64", self.times))
        return moved + self.first if self.first else moved


@dataclass(frozen=True)
class Access:
    """A view of `tensor` times `factor`; `axes` has one entry for each axis of the tensor."""

    tensor: Any
    axes: tuple[AxisAccess, ...]
    factor: float = 1.0

    @property
    def counts(self) -> list[Any]:
        """The extents that only a run knows and that are no extents of the tensor."""
        return [access.count for access in self.axes if _is_open(access.count)]

    def with_counts(self, counts: Iterator[Any]) -> "Access":
        """Replace the `counts` of the view: TE renames the dims."""
        axes = tuple(
            replace(access, count=next(counts)) if _is_open(access.count) else access
            for access in self.axes
        )
        return replace(self, axes=axes)

    @property
    def rank(self) -> int:
        """The number of axes of the view."""
        return sum(access.axis is not None for access in self.axes)

    def read(self, data: Any, indices: Sequence[Any]) -> Any:
        """The element of `data`, the tensor in TE, at `indices` of the view, as float32: of int8,
        rows of bytes with a scale.
        """
        *row, last = (access.index(indices) for access in self.axes)
        if str(data.dtype) == "int8":
            return byte_rows.real(
                lambda index: data(*row, index), last, byte_rows.size_of(data.shape)
            )
        value = data(*row, last)
        return value if str(data.dtype) == "float32" else value.astype("float32")

    def read_bfloat16(self, data: Any, indices: Sequence[Any]) -> Any:
        """The element that `read` returns, times the factor, rounded to bfloat16."""
        value = self.read(data, indices)
        return cast_to_bfloat16(
            value if self.factor == 1 else value * tirx.const(self.factor, "float32")
        )

    def extents(self, shape: Sequence[Any]) -> list[Any]:
        """The extents of the view, given those of the tensor: TE renames the dims."""
        counts = [
            extent if access.count is None else _extent(access.count)
            for access, extent in zip(self.axes, shape, strict=True)
        ]
        by_axis = {
            access.axis: count * access.times
            for access, count in zip(self.axes, counts, strict=True)
        }
        return [by_axis[axis] for axis in range(self.rank)]


def _is_open(count: Any) -> bool:
    return count is not None and not isinstance(count, int)


def _extent(count: Any) -> Any:
    return count if _is_open(count) else tirx.IntImm("int64", count)


@dataclass
class Change:
    """One elementwise operator on the scores: `operands` in order, None for the scores."""

    name: str
    operands: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class Attention:
    """An attention over q [.., m, d], k [.., d, n] and v [.., n, e].

    changes: the operators between the first matmul and the softmax, in order; order: the axes of
    [.., m, e] in the order of the result; is_bfloat16: True if the operands of both matmuls are
    rounded to bfloat16, so that the softmax divides before the second one; steady: True if a
    query's result may not depend on the number of queries; safe: True if the weights of a query
    whose softmax is NaN become zeros.
    """

    q: Access
    k: Access
    v: Access
    changes: tuple[Change, ...]
    order: tuple[int, ...]
    is_bfloat16: bool = False
    steady: bool = False
    safe: bool = False

    @property
    def counts(self) -> list[Any]:
        """The `counts` of the three views."""
        return [*self.q.counts, *self.k.counts, *self.v.counts]

    def with_counts(self, counts: Sequence[Any]) -> "Attention":
        """Replace the `counts` of the attention."""
        remaining = iter(counts)
        q, k, v = (access.with_counts(remaining) for access in (self.q, self.k, self.v))
        return replace(self, q=q, k=k, v=v)


def attention(spec: Attention, q: Any, k: Any, v: Any, *others: Any) -> Any:
    """Write the stages named in STAGES in TE; others: the tensors that the changes read."""
    *batch, m, depth = spec.q.extents(q.shape)
    n, width = spec.k.extents(k.shape)[-1], spec.v.extents(v.shape)[-1]
    d = te.reduce_axis((0, depth), name="d")
    read = Access.read_bfloat16 if spec.is_bfloat16 else Access.read
    scores = te.compute(
        (*batch, m, n),
        lambda *axes: te.sum(
            read(spec.q, q, [*axes[:-1], d]) * read(spec.k, k, [*axes[:-2], d, axes[-1]]), axis=[d]
        ),
        name=STAGES[0],
    )
    changed = te.compute(
        (*batch, m, n),
        lambda *axes: _apply_changes(spec.changes, scores(*axes), axes, list(others)),
        name=STAGES[1],
    )
    # Softmax subtracts the greatest score of a row, so that exp does not overflow.
    j = te.reduce_axis((0, n), name="j")
    greatest = te.compute(
        (*batch, m), lambda *axes: te.max(changed(*axes, j), axis=[j]), name=STAGES[2]
    )
    powers = te.compute(
        (*batch, m, n),
        lambda *axes: tirx.exp(changed(*axes) - greatest(*axes[:-1])),
        name=STAGES[3],
    )
    i = te.reduce_axis((0, n), name="i")
    total = te.compute(
        (*batch, m), lambda *axes: te.sum(powers(*axes, i), axis=[i]), name=STAGES[4]
    )
    k2 = te.reduce_axis((0, n), name="k")

    # The greatest power of a row is 1, so that its sum is 0 or NaN only where its softmax is NaN.
    def weight(*axes: Any) -> Any:
        value = powers(*axes) / total(*axes[:-1]) if spec.is_bfloat16 else powers(*axes)
        if spec.safe:
            value = tirx.Select(total(*axes[:-1]) > 0, value, tirx.const(0, "float32"))
        return cast_to_bfloat16(value) if spec.is_bfloat16 else value

    def divisor(*axes: Any) -> Any:
        value = total(*axes)
        return tirx.Select(value > 0, value, tirx.const(1, "float32")) if spec.safe else value

    summed = te.compute(
        (*batch, m, width),
        lambda *axes: te.sum(
            weight(*axes[:-1], k2) * read(spec.v, v, [*axes[:-2], k2, axes[-1]]), axis=[k2]
        ),
        name=STAGES[5],
    )

    # Dividing the result takes e divisions a row; dividing the powers takes n.
    def output(*axes: Any) -> Any:
        indices = [index for _, index in sorted(zip(spec.order, axes, strict=True))]
        return summed(*indices) if spec.is_bfloat16 else summed(*indices) / divisor(*indices[:-1])

    extents = (*batch, m, width)
    return te.compute(
        tuple(extents[axis] for axis in spec.order),
        output,
        name=STEADY if spec.steady else STAGES[6],
    )


def _apply_changes(
    changes: Sequence[Change], value: Any, axes: Sequence[Any], others: list[Any]
) -> Any:
    """Apply the changes to the score at `axes`, taking their tensors from the front of `others`."""
    for change in changes:
        operands = [
            value if operand is None else _load_broadcast(others.pop(0), axes)
            for operand in change.operands
        ]
        value = CHANGES[change.name](*operands)
    return value


def _load_broadcast(tensor: Any, axes: Sequence[Any]) -> Any:
    last = axes[len(axes) - len(tensor.shape) :]
    return tensor(
        *(
            0 if getattr(extent, "value", None) == 1 else index
            for extent, index in zip(tensor.shape, last, strict=True)
        )
    )
