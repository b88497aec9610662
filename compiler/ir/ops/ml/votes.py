"""Labels and scores from the sums that trees give classes, by the rules of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.errors import ImportFailed
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.ml import scores as sc
from compiler.ir.ops.ml.forest import Presence
from compiler.ir.ops.ml.scores import PostTransform
from compiler.ir.ops.ml.trees import Scores
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import layout


@dataclass(frozen=True)
class Classes:
    """labels: by class; base: what is added to scores; positive: whether no weight is below 0; one:
    whether all weights are of one class.
    """

    labels: Sequence[int]
    base: np.ndarray[Any, Any]
    post: PostTransform
    positive: bool
    one: bool


def classify(b: Builder, found: Scores, classes: Classes) -> tuple[Value, Value]:
    """Labels int64 [n] and scores float32 [n, classes]."""
    match len(classes.labels):
        case 1:
            return _single(b, found, classes)
        case 2:
            return _binary(b, found, classes)
    return _several(b, found, classes)


def _based(b: Builder, x: Value, base: np.ndarray[Any, Any]) -> Value:
    return ew.add(b, x, Known.of(base, x.dtype)) if base.any() else x


def _narrow(b: Builder, x: Value) -> Value:
    return ew.cast(b, x, "float32")


def _single(b: Builder, found: Scores, classes: Classes) -> tuple[Value, Value]:
    values = _based(b, found.values, classes.base)
    label = sc.choose(b, values, 0.0, (0, 1))
    return label, sc.transformed(b, _narrow(b, values), classes.post)


def _several(b: Builder, found: Scores, classes: Classes) -> tuple[Value, Value]:
    """The class of the greatest score; a class that a row has no weight for cannot win."""
    count, given = len(classes.labels), len(classes.base)
    base = np.concatenate([classes.base, np.zeros(count - given)])
    values = _based(b, found.values, base)
    sure = np.asarray([p is Presence.ALWAYS for p in found.presence]) | (np.arange(count) < given)
    judged = values
    if not sure.all():
        least = Known.of(np.full((), -np.inf), values.dtype)
        maybe = np.asarray([p is Presence.SOMETIMES for p in found.presence])
        held: Value = Known.of(sure[None, :])
        if found.present is not None and maybe.any():
            held = ew.cast(b, ew.add(b, found.present, Known.of(sure.astype(np.int32))), "bool")
        judged = ew.where(b, held, values, least)
    label = sc.best(b, judged, classes.labels)
    return label, sc.transformed(b, _narrow(b, values), classes.post)


def _binary(b: Builder, found: Scores, classes: Classes) -> tuple[Value, Value]:
    """Two classes may be scored by one number, then that of the second class."""
    match found.presence[1]:
        case Presence.ALWAYS:
            return _both(b, found, classes)
        case Presence.NEVER:
            return _alone(b, found, classes)
    held = _present(b, found, 1)
    (label, scores), (lone, pair) = _both(b, found, classes), _alone(b, found, classes)
    row = layout.squeeze(b, held, [1])
    return ew.where(b, row, label, lone), ew.where(b, held, scores, pair)


def _columns(b: Builder, found: Scores) -> tuple[Value, Value]:
    first, second = layout.split(b, found.values, 1, [1, 1])
    return first, second


def _present(b: Builder, found: Scores, target: int) -> Value:
    """Bool [n, 1]: which rows have a weight for the target, where rows differ in that."""
    assert found.present is not None
    return ew.cast(b, layout.strided_slice(b, found.present, 1, target, target + 1, 1), "bool")


def _held(b: Builder, found: Scores, first: Value) -> Value:
    """The first class's score, 0 in rows without a weight for it: base values do not count."""
    zero = Known.of(np.zeros(()), first.dtype)
    match found.presence[0]:
        case Presence.NEVER:
            return _columns(b, found)[0]
        case Presence.SOMETIMES:
            return ew.where(b, _present(b, found, 0), first, zero)
    return first


def _label(b: Builder, score: Value, classes: Classes) -> Value:
    if not classes.one:
        return sc.choose(b, score, 0.0, (0, 1))
    return sc.choose(b, score, 0.5 if classes.positive else 0.0, classes.labels)


def _both(b: Builder, found: Scores, classes: Classes) -> tuple[Value, Value]:
    """Rows that have a weight for the second class."""
    first, second = _columns(b, found)
    base = classes.base
    if len(base) == 2:
        # As ONNX Runtime has it: the first class's sum counts for the second.
        second = _based(b, first, base[1:])
        first = ew.subtract(b, Known.of(np.zeros(()), second.dtype), second)
    elif len(base) == 1:
        first = _based(b, first, base)
    columns = [_held(b, found, first), second]
    scores = _narrow(b, layout.concat(b, columns, 1))
    return _label(b, second, classes), sc.transformed(b, scores, classes.post)


def _alone(b: Builder, found: Scores, classes: Classes) -> tuple[Value, Value]:
    """Rows that have none: the first class's sum is the score."""
    score = _held(b, found, _based(b, _columns(b, found)[0], classes.base[:1]))
    label, narrow = _label(b, score, classes), _narrow(b, score)
    if len(classes.base) == 2:
        second = _narrow(b, _columns(b, found)[1])
        return label, sc.transformed(b, layout.concat(b, [narrow, second], 1), classes.post)
    if classes.post is PostTransform.PROBIT:
        raise ImportFailed(
            "PROBIT of two classes with one score is not defined for the second class",
            reason="unsupported_form",
            hint="export the model with another post_transform",
        )
    return label, sc.pair(b, narrow, classes.post, classes.one and classes.positive)
