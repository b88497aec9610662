"""Non-maximum suppression over boxes, greedy by score, per batch entry and class."""

from typing import Any

from tvm import tirx

from compiler.ir.graph import loop_programs
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Tensor, Value
from compiler.ir.ops.shape import layout
from compiler.ir.ops.shape.sorting import merge_sort, precedes
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent


def suppress(
    b: Builder,
    boxes: Value,
    scores: Value,
    most: Value,
    overlap: Value,
    least: Value | None,
    centred: bool,
) -> Value:
    """int64[selected, 3] of batch, class and box index: best scores first within a batch entry's
    class.

    boxes: float[batch, n, 4], corners or (centred) centre and size; scores: float[batch, classes,
    n]; most: int64 scalar, how many to keep per class; overlap: boxes whose intersection over union
    with a kept one is above it go; least: boxes whose score is not above it go.
    """
    batch = b.same(
        boxes.shape[0], scores.shape[0], "NonMaxSuppression: boxes and scores differ in batch"
    )
    count = b.same(
        boxes.shape[1], scores.shape[2], "NonMaxSuppression: boxes and scores differ in number"
    )
    classes = scores.shape[1]
    selected, counts = _select(
        b, (batch, classes, count), (boxes, scores, most, overlap, least), centred
    )
    return _compact(b, (batch, classes, count), selected, counts)


def _select(
    b: Builder, extents: tuple[Extent, Extent, Extent], values: tuple[Any, ...], centred: bool
) -> tuple[Tensor, Tensor]:
    """Selected boxes by batch and class, in the head of each row of n, and how many."""
    batch, classes, count = extents
    boxes, scores, most, overlap, least = values
    scalars = [
        layout.reshape(b, value, [1])
        for value in (most, overlap, *([] if least is None else [least]))
    ]
    rows = b.facts.simplify(ex.mul(batch, classes))
    size = b.facts.simplify(ex.mul(rows, count))

    def body(inputs: list[Any], outputs: list[Any]) -> None:
        corner, score, limit, above = inputs[:4]
        selected, counts, order, spare = outputs

        def row(r: Any) -> None:
            entry, group = tirx.floordiv(r, ex.prim(classes)), tirx.floormod(r, ex.prim(classes))
            base, candidates, chosen = (
                r * ex.prim(count),
                loop_programs.cell(),
                loop_programs.cell(),
            )

            def passes(i: Any) -> Any:
                return (
                    score[entry, group, i] > inputs[4][0]
                    if least is not None
                    else tirx.const(True, "bool")
                )

            with loop_programs.serial(count) as i, loop_programs.when(passes(i)):
                order[base + candidates[0]] = i
                candidates[0] = candidates[0] + 1
            merge_sort(
                candidates[0],
                order,
                spare,
                base,
                lambda p, q: precedes(
                    score[entry, group, p], score[entry, group, q], "float32", True
                ),
            )
            with (
                loop_programs.serial(candidates[0]) as i,
                loop_programs.when(chosen[0] < limit[0].astype("int64")),
            ):
                box, free = order[base + i], loop_programs.cell("bool", True)
                with loop_programs.serial(chosen[0]) as j:
                    other = selected[base + j]
                    free[0] = tirx.And(
                        free[0], tirx.Not(_overlaps(corner, entry, box, other, above[0], centred))
                    )
                with loop_programs.when(free[0]):
                    selected[base + chosen[0]] = box
                    chosen[0] = chosen[0] + 1
            counts[r] = chosen[0]

        loop_programs.spread(rows, row, ex.mul(count, 64))

    forms = [((size,), "int64"), ((rows,), "int64"), ((size,), "int64"), ((size,), "int64")]
    selected, counts, _, _ = loop_programs.program(
        b, body, forms, boxes, scores, *scalars, name="suppress"
    )
    return selected, counts


def _edges(boxes: Any, entry: Any, box: Any, axis: int, centred: bool) -> tuple[Any, Any]:
    one, other = boxes[entry, box, ex.prim(axis)], boxes[entry, box, ex.prim(axis + 2)]
    half = other * tirx.const(0.5, "float32")
    return (one - half, one + half) if centred else (tirx.min(one, other), tirx.max(one, other))


def _overlaps(boxes: Any, entry: Any, p: Any, q: Any, limit: Any, centred: bool) -> Any:
    """True where intersection over union is above the limit; boxes without area overlap nothing."""
    zero = tirx.const(0.0, "float32")
    common, first, second = (
        tirx.const(1.0, "float32"),
        tirx.const(1.0, "float32"),
        tirx.const(1.0, "float32"),
    )
    for axis in (0, 1):
        (low, high), (start, stop) = (
            _edges(boxes, entry, p, axis, centred),
            _edges(boxes, entry, q, axis, centred),
        )
        common = common * tirx.max(tirx.min(high, stop) - tirx.max(low, start), zero)
        first, second = first * (high - low), second * (stop - start)
    union = first + second - common
    positive = tirx.And(
        tirx.And(first > zero, second > zero), tirx.And(union > zero, common > zero)
    )
    return tirx.And(positive, common > limit * union)


def _compact(
    b: Builder, extents: tuple[Extent, Extent, Extent], selected: Tensor, counts: Tensor
) -> Value:
    """The heads of all rows below one another, with their batch and class."""
    batch, classes, count = extents
    rows = b.facts.simplify(ex.mul(batch, classes))

    def add(inputs: list[Any], outputs: list[Any]) -> None:
        total = loop_programs.cell()
        with loop_programs.serial(rows) as r:
            total[0] = total[0] + inputs[0][r]
        outputs[0][0] = total[0]

    def fill(inputs: list[Any], outputs: list[Any]) -> None:
        row = loop_programs.cell()
        with loop_programs.serial(rows) as r, loop_programs.serial(inputs[1][r]) as i:
            triple = (
                tirx.floordiv(r, ex.prim(classes)),
                tirx.floormod(r, ex.prim(classes)),
                inputs[0][r * ex.prim(count) + i],
            )
            for column, value in enumerate(triple):
                outputs[0][row[0], ex.prim(column)] = value
            row[0] = row[0] + 1

    (total,) = loop_programs.program(b, add, [((1,), "int64")], counts, name="count_boxes")
    number: Extent = b.known_counts(total, "boxes").scalars()[0]
    return loop_programs.program(b, fill, [((number, 3), "int64")], selected, counts, name="boxes")[
        0
    ]
