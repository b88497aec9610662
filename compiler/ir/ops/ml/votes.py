"""Labels and scores from the sums that trees give classes, by the rules of ONNX Runtime."""

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
    """labels: by class; base: what is added to scores; positive: no weight is below 0; single: all
    weights are of one class.
    """

    labels: Sequence[int]
    base: np.ndarray[Any, Any]
    post: PostTransform
    positive: bool
    single: bool


def classify(b: Builder, scores: Scores, classes: Classes) -> tuple[Value, Value]:
    """Labels int64 [n] and scores float32 [n, classes]."""
    match len(classes.labels):
        case 1:
            return _single(b, scores, classes)
        case 2:
            return _binary(b, scores, classes)
    return _several(b, scores, classes)


def _based(b: Builder, x: Value, base: np.ndarray[Any, Any]) -> Value:
    return ew.add(b, x, Known.of(base, x.dtype)) if base.any() else x


def _float32(b: Builder, x: Value) -> Value:
    return ew.cast(b, x, "float32")


def _single(b: Builder, scores: Scores, classes: Classes) -> tuple[Value, Value]:
    values = _based(b, scores.values, classes.base)
    label = sc.choose(b, values, 0.0, (0, 1))
    return label, sc.transform(b, _float32(b, values), classes.post)


def _several(b: Builder, scores: Scores, classes: Classes) -> tuple[Value, Value]:
    """The class of the greatest score; a class that a row has no weight for cannot win."""
    count, based = len(classes.labels), len(classes.base)
    base = np.concatenate([classes.base, np.zeros(count - based)])
    values = _based(b, scores.values, base)
    sure = np.asarray([p is Presence.ALWAYS for p in scores.presence]) | (np.arange(count) < based)
    judged = values
    if not sure.all():
        least = Known.of(np.full((), -np.inf), values.dtype)
        maybe = np.asarray([p is Presence.SOMETIMES for p in scores.presence])
        eligible: Value = Known.of(sure[None, :])
        if scores.present is not None and maybe.any():
            eligible = ew.cast(
                b, ew.add(b, scores.present, Known.of(sure.astype(np.int32))), "bool"
            )
        judged = ew.where(b, eligible, values, least)
    label = sc.best(b, judged, classes.labels)
    return label, sc.transform(b, _float32(b, values), classes.post)


def _binary(b: Builder, scores: Scores, classes: Classes) -> tuple[Value, Value]:
    """Two classes may be scored by one number, then that of the second class."""
    match scores.presence[1]:
        case Presence.ALWAYS:
            return _both(b, scores, classes)
        case Presence.NEVER:
            return _alone(b, scores, classes)
    has_weight = _present(b, scores, 1)
    (label, pair_scores), (lone, pair) = _both(b, scores, classes), _alone(b, scores, classes)
    row = layout.squeeze(b, has_weight, [1])
    return ew.where(b, row, label, lone), ew.where(b, has_weight, pair_scores, pair)


def _columns(b: Builder, scores: Scores) -> tuple[Value, Value]:
    first, second = layout.split(b, scores.values, 1, [1, 1])
    return first, second


def _present(b: Builder, scores: Scores, target: int) -> Value:
    """Bool [n, 1]: which rows have a weight for the target, where rows differ in that."""
    assert scores.present is not None
    return ew.cast(b, layout.strided_slice(b, scores.present, 1, target, target + 1, 1), "bool")


def _first_score(b: Builder, scores: Scores, first: Value) -> Value:
    """The first class's score, 0 in rows without a weight for it: base values do not count."""
    zero = Known.of(np.zeros(()), first.dtype)
    match scores.presence[0]:
        case Presence.NEVER:
            return _columns(b, scores)[0]
        case Presence.SOMETIMES:
            return ew.where(b, _present(b, scores, 0), first, zero)
    return first


def _label(b: Builder, score: Value, classes: Classes) -> Value:
    if not classes.single:
        return sc.choose(b, score, 0.0, (0, 1))
    return sc.choose(b, score, 0.5 if classes.positive else 0.0, classes.labels)


def _both(b: Builder, scores: Scores, classes: Classes) -> tuple[Value, Value]:
    """Rows that have a weight for the second class."""
    first, second = _columns(b, scores)
    base = classes.base
    if len(base) == 2:
        # As ONNX Runtime has it: the first class's sum counts for the second.
        second = _based(b, first, base[1:])
        first = ew.subtract(b, Known.of(np.zeros(()), second.dtype), second)
    elif len(base) == 1:
        first = _based(b, first, base)
    columns = [_first_score(b, scores, first), second]
    values = _float32(b, layout.concat(b, columns, 1))
    return _label(b, second, classes), sc.transform(b, values, classes.post)


def _alone(b: Builder, scores: Scores, classes: Classes) -> tuple[Value, Value]:
    """Rows that have none: the first class's sum is the score."""
    score = _first_score(b, scores, _based(b, _columns(b, scores)[0], classes.base[:1]))
    label, first = _label(b, score, classes), _float32(b, score)
    if len(classes.base) == 2:
        second = _float32(b, _columns(b, scores)[1])
        return label, sc.transform(b, layout.concat(b, [first, second], 1), classes.post)
    if classes.post is PostTransform.PROBIT:
        raise ImportFailed(
            "PROBIT of two classes with one score is not defined for the second class",
            reason="unsupported_form",
            hint="export the model with another post_transform",
        )
    return label, sc.pair(b, first, classes.post, classes.single and classes.positive)
