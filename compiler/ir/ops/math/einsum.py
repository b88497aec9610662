"""Einstein summation as diagonals, sums, matmuls and a transpose."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te

from compiler.errors import ImportFailed
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.ops.math import linear, reduce
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent

Labels = tuple[str, ...]
ELLIPSIS = "..."


@dataclass(frozen=True)
class Term:
    """A value with one label an axis."""

    value: Value
    labels: Labels

    def extent(self, label: str) -> Extent:
        """The extent of a label's axis, 1 where it has none."""
        return self.value.shape[self.labels.index(label)] if label in self.labels else 1


def einsum(b: Builder, equation: str, values: Sequence[Value]) -> Value:
    """The sum of products that the equation names, as numpy's einsum; `...` stands for axes that
    broadcast.
    """
    terms, output = parse(equation, values)
    terms = [_diagonal(b, term) for term in terms]
    current = terms[0]
    for index, term in enumerate(terms[1:], start=1):
        later = {label for rest in terms[index + 1 :] for label in rest.labels}
        current = _multiply(b, current, term, later | set(output))
    current = _sum_out(b, current, set(output))
    return layout.transpose(b, current.value, [current.labels.index(label) for label in output])


def parse(equation: str, values: Sequence[Value]) -> tuple[list[Term], Labels]:
    """The operands with their labels, and the result's labels; an ellipsis becomes labels counted
    from the right.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    inputs = left.split(",")
    if len(inputs) != len(values):
        raise ImportFailed(
            f"the equation {equation!r} has {len(inputs)} operands, the node {len(values)}",
            reason="attribute",
        )
    terms = [
        Term(value, _labels(text, len(value.shape)))
        for text, value in zip(inputs, values, strict=True)
    ]
    spread = max(
        (sum(label.startswith(ELLIPSIS) for label in term.labels) for term in terms), default=0
    )
    if arrow:
        return terms, _labels(
            right, len(right.replace(ELLIPSIS, "")) + (spread if ELLIPSIS in right else 0)
        )
    letters = [label for term in terms for label in term.labels if not label.startswith(ELLIPSIS)]
    once = sorted(letter for letter in set(letters) if letters.count(letter) == 1)
    return terms, (*_spread(spread), *once)


def _spread(count: int) -> Labels:
    return tuple(f"{ELLIPSIS}{index}" for index in reversed(range(count)))


def _labels(text: str, rank: int) -> Labels:
    before, dots, after = text.partition(ELLIPSIS)
    hidden = rank - len(before) - len(after)
    if hidden < 0 or (hidden and not dots):
        raise ImportFailed(
            f"the subscripts {text!r} do not name the axes of a tensor of rank {rank}",
            reason="attribute",
        )
    return (*before, *_spread(hidden), *after)


def _diagonal(b: Builder, term: Term) -> Term:
    """Axes of one label that repeats made one."""
    labels = tuple(dict.fromkeys(term.labels))
    if len(labels) == len(term.labels):
        return term
    extents: dict[str, Extent] = {}
    for label, extent in zip(term.labels, term.value.shape, strict=True):
        extents[label] = b.same(
            extents.get(label, extent),
            extent,
            f"Einsum: axes of the repeated label {label!r} differ",
        )

    def compute(data: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            return data(*(i[labels.index(label)] for label in term.labels))

        return te.compute([ex.prim(extents[label]) for label in labels], element, name="diagonal")

    return Term(b.te(compute, term.value, name="diagonal"), labels)


def _sum_out(b: Builder, term: Term, keep: set[str]) -> Term:
    """Sum over the labels that nothing needs any more."""
    gone = [axis for axis, label in enumerate(term.labels) if label not in keep]
    if not gone:
        return term
    return Term(
        reduce.reduce(b, term.value, "sum", gone, False),
        tuple(label for label in term.labels if label in keep),
    )


def _multiply(b: Builder, left: Term, right: Term, keep: set[str]) -> Term:
    """The product of two terms, summed over the labels of both that are not kept."""
    left, right = (
        _sum_out(b, left, keep | set(right.labels)),
        _sum_out(b, right, keep | set(left.labels)),
    )
    shared = [label for label in left.labels if label in right.labels]
    summed = [label for label in shared if label not in keep]
    batch = [label for label in shared if label in keep]
    rows = [label for label in left.labels if label not in shared]
    columns = [label for label in right.labels if label not in shared]
    if not summed:
        return _outer(b, left, right, (*batch, *rows, *columns))
    for label in shared:
        if not label.startswith(ELLIPSIS):
            b.same(left.extent(label), right.extent(label), f"Einsum: extents of {label!r} differ")
    result = linear.matmul(
        b, _matrix(b, left, batch, rows, summed), _matrix(b, right, batch, summed, columns)
    )
    shape = [*result.shape[: len(batch)], *map(left.extent, rows), *map(right.extent, columns)]
    return Term(layout.reshape(b, result, shape), (*batch, *rows, *columns))


def _matrix(
    b: Builder, term: Term, batch: Sequence[str], rows: Sequence[str], columns: Sequence[str]
) -> Value:
    """The term with its batch axes first, the others merged into two."""
    order = [term.labels.index(label) for label in (*batch, *rows, *columns)]
    moved = layout.transpose(b, term.value, order)
    merged = [b.facts.simplify(ex.prod(map(term.extent, labels))) for labels in (rows, columns)]
    return layout.reshape(b, moved, [*map(term.extent, batch), *merged])


def _outer(b: Builder, left: Term, right: Term, labels: Labels) -> Term:
    """The elementwise product with every label an axis."""
    sides = []
    for term in (left, right):
        own = [label for label in labels if label in term.labels]
        moved = layout.transpose(b, term.value, [term.labels.index(label) for label in own])
        sides.append(layout.reshape(b, moved, [term.extent(label) for label in labels]))
    return Term(ew.multiply(b, *sides), labels)
