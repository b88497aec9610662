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
class Place:
    """Where a view reads along one axis of its tensor: from `first` on, as axis `at` of the view
    counts, or at `first` alone if `at` is None.

    count: the extent, an expression of dims where only a run knows it, None for the whole axis;
    times: how often the view repeats each place in a row.
    """

    at: int | None
    first: int = 0
    count: Any = None
    times: int = 1

    def index(self, indices: Sequence[Any]) -> Any:
        """The index along the axis for `indices` of the view."""
        moved = tirx.IntImm("int64", 0) if self.at is None else indices[self.at]
        if self.times > 1:
            moved = tirx.floordiv(moved, tirx.IntImm("int64", self.times))
        return moved + self.first if self.first else moved


@dataclass(frozen=True)
class Access:
    """A view of `tensor`, with a place for each axis of the tensor, multiplied by `factor`."""

    tensor: Any
    places: tuple[Place, ...]
    factor: float = 1.0

    @property
    def counts(self) -> list[Any]:
        """The extents that only a run knows and that its tensor has not."""
        return [place.count for place in self.places if _is_open(place.count)]

    def counted(self, counts: Iterator[Any]) -> "Access":
        """The view with these in place of its `counts`: TE renames the dims."""
        places = tuple(
            replace(place, count=next(counts)) if _is_open(place.count) else place
            for place in self.places
        )
        return replace(self, places=places)

    @property
    def rank(self) -> int:
        """How many axes the view has."""
        return sum(place.at is not None for place in self.places)

    def read(self, data: Any, indices: Sequence[Any]) -> Any:
        """The element of `data`, the tensor in TE, at `indices` of the view, as float32: of int8,
        rows of bytes with a scale.
        """
        *row, last = (place.index(indices) for place in self.places)
        if str(data.dtype) == "int8":
            return byte_rows.real(lambda at: data(*row, at), last, byte_rows.size_of(data.shape))
        value = data(*row, last)
        return value if str(data.dtype) == "float32" else value.astype("float32")

    def read_bfloat16(self, data: Any, indices: Sequence[Any]) -> Any:
        """As `read`, multiplied by the factor and rounded to bfloat16."""
        value = self.read(data, indices)
        return cast_to_bfloat16(
            value if self.factor == 1 else value * tirx.const(self.factor, "float32")
        )

    def extents(self, shape: Sequence[Any]) -> list[Any]:
        """The extents of the view, given those of the tensor: TE renames the dims."""
        counts = [
            extent if place.count is None else _extent(place.count)
            for place, extent in zip(self.places, shape, strict=True)
        ]
        kept = {
            place.at: count * place.times for place, count in zip(self.places, counts, strict=True)
        }
        return [kept[at] for at in range(self.rank)]


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
    [.., m, e] in the order of the result; rounded: whether the operands of both matmuls are
    rounded to bfloat16, so that the softmax divides before the second one; steady: whether a
    query's result may not depend on how many queries there are; safe: whether the weights of a
    query whose softmax is NaN become zeros.
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
        """Those of the three views."""
        return [*self.q.counts, *self.k.counts, *self.v.counts]

    def counted(self, counts: Sequence[Any]) -> "Attention":
        """The attention with these in place of its `counts`."""
        left = iter(counts)
        q, k, v = (access.counted(left) for access in (self.q, self.k, self.v))
        return replace(self, q=q, k=k, v=v)


def attention(found: Attention, q: Any, k: Any, v: Any, *others: Any) -> Any:
    """Writes the stages named in STAGES; `others` are the tensors that the changes read."""
    *batch, m, depth = found.q.extents(q.shape)
    n, width = found.k.extents(k.shape)[-1], found.v.extents(v.shape)[-1]
    d = te.reduce_axis((0, depth), name="d")
    read = Access.read_bfloat16 if found.is_bfloat16 else Access.read
    scores = te.compute(
        (*batch, m, n),
        lambda *at: te.sum(
            read(found.q, q, [*at[:-1], d]) * read(found.k, k, [*at[:-2], d, at[-1]]), axis=[d]
        ),
        name=STAGES[0],
    )
    changed = te.compute(
        (*batch, m, n),
        lambda *at: _changed(found.changes, scores(*at), at, list(others)),
        name=STAGES[1],
    )
    # Softmax subtracts the greatest score of a row, so that exp does not overflow.
    j = te.reduce_axis((0, n), name="j")
    greatest = te.compute(
        (*batch, m), lambda *at: te.max(changed(*at, j), axis=[j]), name=STAGES[2]
    )
    powers = te.compute(
        (*batch, m, n), lambda *at: tirx.exp(changed(*at) - greatest(*at[:-1])), name=STAGES[3]
    )
    i = te.reduce_axis((0, n), name="i")
    total = te.compute((*batch, m), lambda *at: te.sum(powers(*at, i), axis=[i]), name=STAGES[4])
    k2 = te.reduce_axis((0, n), name="k")

    # The greatest power of a row is 1, so that its sum is 0 or NaN only where its softmax is NaN.
    def weight(*at: Any) -> Any:
        value = powers(*at) / total(*at[:-1]) if found.is_bfloat16 else powers(*at)
        if found.safe:
            value = tirx.Select(total(*at[:-1]) > 0, value, tirx.const(0, "float32"))
        return cast_to_bfloat16(value) if found.is_bfloat16 else value

    def divisor(*at: Any) -> Any:
        value = total(*at)
        return tirx.Select(value > 0, value, tirx.const(1, "float32")) if found.safe else value

    summed = te.compute(
        (*batch, m, width),
        lambda *at: te.sum(
            weight(*at[:-1], k2) * read(found.v, v, [*at[:-2], k2, at[-1]]), axis=[k2]
        ),
        name=STAGES[5],
    )

    # Dividing the result takes e divisions a row, dividing the powers would take n.
    def output(*at: Any) -> Any:
        place = [index for _, index in sorted(zip(found.order, at, strict=True))]
        return summed(*place) if found.is_bfloat16 else summed(*place) / divisor(*place[:-1])

    extents = (*batch, m, width)
    return te.compute(
        tuple(extents[axis] for axis in found.order),
        output,
        name=STEADY if found.steady else STAGES[6],
    )


def _changed(changes: Sequence[Change], value: Any, at: Sequence[Any], others: list[Any]) -> Any:
    """Applies the changes to the score at `at`, taking their tensors from the front of `others`."""
    for change in changes:
        operands = [
            value if operand is None else _broadcast(others.pop(0), at)
            for operand in change.operands
        ]
        value = CHANGES[change.name](*operands)
    return value


def _broadcast(tensor: Any, at: Sequence[Any]) -> Any:
    last = at[len(at) - len(tensor.shape) :]
    return tensor(
        *(
            0 if getattr(extent, "value", None) == 1 else index
            for extent, index in zip(tensor.shape, last, strict=True)
        )
    )
