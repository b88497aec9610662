"""Post transforms of raw scores, and the labels of classes, as in ai.onnx.ml."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import numpy as np
from tvm import tirx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.indices import Indices
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.math import reduce
from compiler.ir.ops.nn import norm
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.pointwise.programs import like, pointwise
from compiler.ir.ops.shape import layout, sorting


class PostTransform(StrEnum):
    """By ONNX's names, in the order in which TreeEnsemble numbers them."""

    NONE = "NONE"
    SOFTMAX = "SOFTMAX"
    LOGISTIC = "LOGISTIC"
    SOFTMAX_ZERO = "SOFTMAX_ZERO"
    PROBIT = "PROBIT"


def transform(b: Builder, x: Value, post: PostTransform) -> Value:
    """The scores [n, columns] of each row, transformed; a single column knows PROBIT alone, as in
    ONNX Runtime.
    """
    single = x.shape[1] == 1
    match post:
        case PostTransform.PROBIT:
            return pointwise(b, _probit, x, name="probit")
        case PostTransform.LOGISTIC if not single:
            return logistic(b, x)
        case PostTransform.SOFTMAX if not single:
            return norm.softmax(b, x, 1)
        case PostTransform.SOFTMAX_ZERO if not single:
            return _softmax_zero(b, x)
    return x


def logistic(b: Builder, x: Value) -> Value:
    """1 / (1 + exp(-x)) without overflow."""
    return pointwise(b, logistic_of, x, name="logistic")


def logistic_of(x: Any) -> Any:
    """1 / (1 + exp(-x)) of one element."""
    upper = like(x, 1) / (like(x, 1) + tirx.exp(-tirx.abs(x)))
    return tirx.Select(x < like(x, 0), like(x, 1) - upper, upper)


def _probit(x: Any) -> Any:
    """sqrt(2) times the inverse error function of 2x - 1 by Winitzki's approximation, with ONNX
    Runtime's constants.
    """
    argument = like(x, 2) * x - like(x, 1)
    log = tirx.log((like(x, 1) - argument) * (like(x, 1) + argument))
    v = like(x, 2 / (3.14159 * 0.147)) + like(x, 0.5) * log
    size = tirx.sqrt(tirx.sqrt(v * v - like(x, 1 / 0.147) * log) - v)
    return like(x, np.sqrt(2.0)) * tirx.Select(argument < like(x, 0), -size, size)


def _softmax_zero(b: Builder, x: Value) -> Value:
    """Softmax over the columns that are not zero; those that are stay zero."""
    top = reduce.reduce(b, x, "max", [1], True)

    def counts(value: Any) -> Any:
        return tirx.abs(value) > like(value, 1e-7)

    def power(value: Any, most: Any) -> Any:
        zero = value * tirx.exp(-most)
        return tirx.Select(counts(value), tirx.exp(value - most), zero)

    def share(value: Any, raised: Any) -> Any:
        return tirx.Select(counts(value), raised, like(raised, 0))

    raised = pointwise(b, power, x, top, name="softmax_zero")
    shares = pointwise(b, share, x, raised, name="softmax_zero_shares")
    return ew.divide(b, raised, reduce.reduce(b, shares, "sum", [1], True))


def pair(b: Builder, score: Value, post: PostTransform, positive: bool) -> Value:
    """The columns of two classes from the one score [n, 1] of the second: the logistic function of
    it and its opposite; else the complement to 1 if scores are all positive, or the opposite.
    """
    total = float(positive and post is not PostTransform.LOGISTIC)
    other = ew.subtract(b, Known.of(np.full((), total), score.dtype), score)
    if post is PostTransform.LOGISTIC:
        score, other = logistic(b, score), logistic(b, other)
    return layout.concat(b, [other, score], 1)


def best(b: Builder, x: Value, labels: Sequence[int]) -> Value:
    """int64 [n]: the label of each row's greatest score, the first of equal ones."""
    b.same(x.shape[1], len(labels), "there are not as many labels as scores")
    position = layout.squeeze(b, sorting.arg_extreme(b, x, 1, True, False), [1])
    if list(labels) == list(range(len(labels))):
        return position
    names = Known.of(np.asarray(labels, np.int64))
    return layout.take(b, names, Indices.from_program(position, len(labels)), 0)


def choose(b: Builder, score: Value, above: float, labels: Sequence[int]) -> Value:
    """int64 [n]: the second label for rows whose score [n, 1] is above the limit, else the
    first.
    """
    no, yes = labels

    def label(value: Any) -> Any:
        passes = value > like(value, above)
        return tirx.Select(passes, tirx.const(yes, "int64"), tirx.const(no, "int64"))

    return layout.squeeze(b, pointwise(b, label, score, name="label"), [1])
