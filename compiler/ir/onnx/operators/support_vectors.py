"""ai.onnx.ml's support vector machines."""

from typing import Any

import numpy as np

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.onnx.classical import (
    DOMAIN,
    Labels,
    floats,
    integers,
    labels_of,
    post_transform,
    rows,
)
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.registry import op
from compiler.ir.ops.math import linear, reduce
from compiler.ir.ops.ml import scores as sc
from compiler.ir.ops.ml import support_vectors
from compiler.ir.ops.ml.scores import PostTransform
from compiler.ir.ops.ml.support_vectors import Kernel, KernelKind
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape.layout import squeeze
from compiler.ir.shapes import extents as ex


def _kernel(node: Node) -> Kernel:
    name, numbers = node.attr("kernel_type", "LINEAR"), floats(node, "kernel_params")
    if name not in KernelKind.__members__ or len(numbers) not in (0, 3):
        node.fail("kernel_type or kernel_params is not as ONNX defines it", reason="attribute")
    gamma, offset, degree = (float(value) for value in numbers) if len(numbers) else (0.0, 0.0, 0.0)
    return Kernel(KernelKind[name], gamma, offset, degree)


def _vectors(node: Node, count: int) -> np.ndarray[Any, Any]:
    """The support vectors [count, features]."""
    flat = floats(node, "support_vectors")
    if not len(flat) or len(flat) % count:
        node.fail(f"{len(flat)} numbers do not make {count} support vectors", reason="attribute")
    return flat.reshape(count, -1).astype(np.float32)


def _data(b: Builder, node: Node, features: int) -> Value:
    x = rows(b, node, "float32")
    b.require(ex.equal(x.shape[1], features), f"the model takes rows of {features} features")
    return x


def _required(node: Node, name: str, least: int) -> np.ndarray[Any, Any]:
    values = floats(node, name)
    if len(values) < max(least, 1):
        node.fail(f"{name} has {len(values)} elements, {least} are needed", reason="attribute")
    return values.astype(np.float32)


@op("SVMRegressor", domain=DOMAIN)
def svm_regressor(b: Builder, node: Node) -> Value:
    """x [n, features] to float32 [n, 1]; of one class 1 inside and -1 outside."""
    count, offset = node.attr("n_supports", 0), _required(node, "rho", 1)[:1]
    weights = _required(node, "coefficients", count)
    if count > 0:
        vectors = _vectors(node, count)
        near = support_vectors.near(b, _data(b, node, vectors.shape[1]), vectors, _kernel(node))
        weights = weights[:count]
    else:
        near = _data(b, node, len(weights))
    total = linear.matmul(b, near, Known.of(weights[:, None], "float32"))
    values = ew.add(b, total, Known.of(offset, "float32"))
    if not node.attr("one_class", 0):
        return values
    inside = ew.compare(b, values, Known.of(np.zeros((), np.float32)), "greater")
    one = Known.of(np.ones((), np.float32))
    return ew.where(b, inside, one, Known.of(np.full((), -1, np.float32)))


@op("SVMClassifier", domain=DOMAIN)
def svm_classifier(b: Builder, node: Node) -> list[Value | None]:
    """x [n, features] to labels [n] and float32 scores: by class where there are probabilities or
    no support vectors, else by pair of classes.
    """
    labels = labels_of(node, "classlabels_ints", "classlabels_strings")
    per_class = integers(node, "vectors_per_class")
    if not labels:
        node.fail("the classifier names no classes", reason="attribute")
    if per_class.sum() > 0:
        label, values = _by_vectors(b, node, labels, per_class)
    else:
        label, values = _by_coefficients(b, node, labels)
    return [labels.output(node, label), values]


def _by_coefficients(b: Builder, node: Node, labels: Labels) -> tuple[Value, Value]:
    count, weights = len(labels), _required(node, "coefficients", 1)
    if len(weights) % count:
        node.fail(f"{len(weights)} coefficients do not make {count} classes", reason="attribute")
    by_feature = Known.of(weights.reshape(count, -1).T.copy(), "float32")
    x = _data(b, node, by_feature.shape[0])
    offset = Known.of(_required(node, "rho", 1)[:1], "float32")
    values = ew.add(b, linear.matmul(b, x, by_feature), offset)
    label = sc.best(b, values, labels.numbers)
    if count == 2:
        # ONNX Runtime takes the second class for any row with a score on the positive side.
        top = reduce.reduce(b, values, "max", [1], True)
        positive = bool((weights >= 0).all())
        least = np.nextafter(np.float32(0.5), np.float32(0)) if positive else 0.0
        second = ew.compare(b, top, Known.of(np.full((), least, np.float32)), "greater")
        other = Known.of(np.asarray(labels.numbers[1], np.int64))
        label = ew.where(b, squeeze(b, second, [1]), other, label)
    return label, sc.transform(b, values, post_transform(node))


def _by_vectors(
    b: Builder, node: Node, labels: Labels, per_class: np.ndarray[Any, Any]
) -> tuple[Value, Value]:
    count, total = len(labels), int(per_class.sum())
    # The sum of huge numbers would wrap around to a small one.
    inside = per_class.min() >= 0 and per_class.max() <= total
    if len(per_class) != count or not inside or count < 2:
        node.fail("vectors_per_class and the labels do not fit together", reason="attribute")
    pairs = count * (count - 1) // 2
    vectors = _vectors(node, total)
    near = support_vectors.near(b, _data(b, node, vectors.shape[1]), vectors, _kernel(node))
    weights = _required(node, "coefficients", (count - 1) * total)[: (count - 1) * total]
    offsets = _required(node, "rho", pairs)[:pairs]
    duels, votes = support_vectors.duels(b, near, weights, offsets, per_class)
    label = sc.best(b, votes, labels.numbers)
    post, slopes = post_transform(node), floats(node, "prob_a")
    if len(slopes):
        platt = [_required(node, name, pairs)[:pairs] for name in ("prob_a", "prob_b")]
        values = support_vectors.probabilities(b, duels, platt[0], platt[1], count)
        return label, sc.transform(b, values, post)
    if count > 2:
        return label, sc.transform(b, duels, post)
    if post is PostTransform.PROBIT:
        node.fail(
            "PROBIT of two classes with one score is not defined for the second class",
            reason="unsupported_form",
            hint="export the model with another post_transform",
        )
    return label, sc.pair(b, duels, post, post is not PostTransform.NONE)
