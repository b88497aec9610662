"""ai.onnx.ml's linear models: products with coefficients, as labels and scores."""

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.onnx.classical import DOMAIN, floats, labels_of, post_transform, rows
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.registry import op
from compiler.ir.ops.math import linear
from compiler.ir.ops.ml import scores as sc
from compiler.ir.ops.ml.scores import PostTransform
from compiler.ir.ops.pointwise import elementwise as ew


def _scores(b: Builder, node: Node, count: int) -> Value:
    """x coefficients^T + intercepts: float32 [n, count]."""
    weights, offsets = floats(node, "coefficients"), floats(node, "intercepts")
    if not count or not len(weights) or len(weights) % count:
        node.fail(
            f"{len(weights)} coefficients do not make {count} rows of features", reason="attribute"
        )
    by_feature = Known.of(weights.reshape(count, -1).T.copy(), "float32")
    scores = linear.matmul(b, rows(b, node, "float32"), by_feature)
    if len(offsets) != count:
        return scores
    return ew.add(b, scores, Known.of(offsets, "float32"))


@op("LinearRegressor", domain=DOMAIN)
def linear_regressor(b: Builder, node: Node) -> Value:
    """x [n, features] to float32 [n, targets]."""
    return sc.transform(b, _scores(b, node, node.attr("targets", 1)), post_transform(node))


@op("LinearClassifier", domain=DOMAIN)
def linear_classifier(b: Builder, node: Node) -> list[Value | None]:
    """x [n, features] to labels [n] and float32 scores [n, classes]."""
    labels = labels_of(node, "classlabels_ints", "classlabels_strings")
    count = len(floats(node, "intercepts")) or len(labels)
    values, post = _scores(b, node, count), post_transform(node)
    if count == 1:
        if len(labels) != 2:
            node.fail(f"{len(labels)} labels are given for two classes", reason="attribute")
        if post is PostTransform.PROBIT:
            node.fail(
                "PROBIT of two classes with one score is not defined for the second class",
                reason="unsupported_form",
                hint="export the model with another post_transform",
            )
        label = sc.choose(b, values, 0.0, labels.numbers)
        return [labels.output(node, label), sc.pair(b, values, post, True)]
    if len(labels) < count:
        node.fail(f"{len(labels)} labels are given for {count} classes", reason="attribute")
    label = sc.best(b, values, labels.numbers[:count])
    return [labels.output(node, label), sc.transform(b, values, post)]
