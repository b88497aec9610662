"""Losses of class scores against class numbers."""

from typing import Any

from tvm import te, tirx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.indices import Indices
from compiler.ir.graph.values import Value
from compiler.ir.ops.math import reduce as rd
from compiler.ir.ops.nn import norm
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import indexing, layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent


def negative_log_likelihood(
    b: Builder, x: Value, target: Value, weight: Value | None, ignored: int | None, reduction: str
) -> Value:
    """-x[n, target[n, i], i] times the class's weight, 0 where the target is `ignored`.

    x [N, C, ...], target [N, ...], weight [C]. reduction: none, sum, or mean, which divides by the
    sum of weights.
    A target that is not ignored must be a class: checked at run time.
    """
    for axis, (one, other) in enumerate(zip([x.shape[0], *x.shape[2:]], target.shape, strict=True)):
        b.same(one, other, f"scores and targets differ on axis {axis}")
    if weight is not None:
        b.same(weight.shape[0], x.shape[1], "as many weights as classes are needed")
    size = b.facts.simplify(ex.prod(x.shape[2:]))
    scores = layout.reshape(b, ew.cast(b, x, norm.wide(x.dtype)), [x.shape[0], x.shape[1], size])
    classes = layout.reshape(b, target, [x.shape[0], size])
    positions = _checked(b, classes, ignored, x.shape[1])
    weights = _weights(b, positions, weight, ignored, scores.dtype)
    losses = _picked(b, scores, positions, weights, ignored)
    if reduction == "none":
        return ew.cast(b, layout.reshape(b, losses, target.shape), x.dtype)
    total = rd.reduce(b, losses, "sum", [0, 1], False)
    if reduction == "mean":
        total = ew.divide(b, total, rd.reduce(b, weights, "sum", [0, 1], False))
    return ew.cast(b, total, x.dtype)


def _class_of(item: Any, ignored: int | None) -> Any:
    """A target as a class that can be read, the first one for an ignored target."""
    item = item.astype("int64")
    return (
        item if ignored is None else tirx.Select(tirx.EQ(item, ex.prim(ignored)), ex.prim(0), item)
    )


def _checked(b: Builder, classes: Value, ignored: int | None, count: Extent) -> Indices:
    """The targets as they are; those that are not ignored are classes."""

    def readable(data: te.Tensor) -> te.Tensor:
        return te.compute(data.shape, lambda *i: _class_of(data(*i), ignored), name="classes")

    indexing.check(b, b.te(readable, classes, name="classes"), count, "a target")
    return Indices(classes, count)


def _weights(
    b: Builder, classes: Indices, weight: Value | None, ignored: int | None, dtype: str
) -> Value:
    """The weight of each target, 0 for ignored ones."""

    def compute(data: te.Tensor, *table: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            row = classes.address(_class_of(data(*i), ignored))
            value = table[0](row).astype(dtype) if table else tirx.const(1, dtype)
            if ignored is None:
                return value
            return tirx.Select(
                tirx.EQ(data(*i).astype("int64"), ex.prim(ignored)), tirx.const(0, dtype), value
            )

        return te.compute(data.shape, element, name="weights")

    table_of_weights = [] if weight is None else [weight]
    return b.te(compute, classes.value, *table_of_weights, name="weights")


def _picked(
    b: Builder, scores: Value, classes: Indices, weights: Value, ignored: int | None
) -> Value:
    zero = tirx.const(0, scores.dtype)

    def compute(data: te.Tensor, target: te.Tensor, weight: te.Tensor) -> te.Tensor:
        def loss_at(n: Any, i: Any) -> Any:
            score = data(n, classes.address(_class_of(target(n, i), ignored)), i)
            loss = zero - score * weight(n, i)
            return (
                loss
                if ignored is None
                else tirx.Select(
                    tirx.EQ(target(n, i).astype("int64"), ex.prim(ignored)), zero, loss
                )
            )

        return te.compute(target.shape, loss_at, name="losses")

    return b.te(compute, scores, classes.value, weights, name="losses")


def log_probabilities(b: Builder, x: Value) -> Value:
    """Logarithm of the softmax over axis 1 of x [N, C, ...]."""
    size = b.facts.simplify(ex.prod(x.shape[2:]))
    scores = layout.reshape(b, x, [x.shape[0], x.shape[1], size]) if len(x.shape) > 2 else x
    return layout.reshape(b, norm.softmax(b, scores, 1, log=True), x.shape)
