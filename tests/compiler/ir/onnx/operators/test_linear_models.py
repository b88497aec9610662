"""Linear models against ONNX Runtime."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from compiler.errors import ImportFailed
from tests.compiler.ir.onnx.running import assert_like_onnxruntime, build, normal

FEATURES = 5
ROWS = (0, 1, 2, 7, 17)


def model_of(op: str, attributes: dict[str, Any], x: str = "FLOAT") -> onnx.ModelProto:
    """One node of ai.onnx.ml over x [n, features]; classifiers give labels and scores."""
    outputs = ["label", "y"] if op.endswith("Classifier") else ["y"]
    present = {
        name: item for name, item in attributes.items() if not isinstance(item, list) or item
    }
    node = helper.make_node(op, ["x"], outputs, domain="ai.onnx.ml", **present)
    kind = getattr(onnx.TensorProto, x)
    graph = helper.make_graph(
        [node],
        "model",
        [helper.make_tensor_value_info("x", kind, ["n", FEATURES])],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
    )
    opsets = [helper.make_opsetid("ai.onnx.ml", 3), helper.make_opsetid("", 19)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def feeds(dtype: str = "float32") -> list[dict[str, np.ndarray]]:
    return [{"x": (normal(n, FEATURES) * 3).astype(dtype)} for n in ROWS]


def numbers(*shape: int) -> list[float]:
    return [float(item) for item in normal(*shape).ravel()]


@pytest.mark.parametrize(
    ("post", "labels", "count", "dtype"),
    [
        ("NONE", [3, 9, -2], 3, "float32"),
        ("SOFTMAX", [3, 9, -2], 3, "float64"),
        ("LOGISTIC", [0, 1], 2, "int64"),
        ("SOFTMAX_ZERO", [0, 1, 2], 3, "int32"),
        ("NONE", [7, 4], 1, "float32"),
        ("LOGISTIC", [7, 4], 1, "float32"),
    ],
)
def test_linear_classifier(post: str, labels: list[int], count: int, dtype: str) -> None:
    attributes = {
        "coefficients": numbers(count, FEATURES),
        "intercepts": numbers(count),
        "classlabels_ints": labels,
        "post_transform": post,
    }
    kind = {"float32": "FLOAT", "float64": "DOUBLE"}.get(dtype, dtype.upper())
    assert_like_onnxruntime(model_of("LinearClassifier", attributes, kind), feeds(dtype))


@pytest.mark.parametrize(
    ("post", "targets", "intercepts"),
    [("NONE", 1, True), ("NONE", 3, False), ("SOFTMAX", 3, True), ("LOGISTIC", 1, True)],
)
def test_linear_regressor(post: str, targets: int, intercepts: bool) -> None:
    attributes = {
        "coefficients": numbers(targets, FEATURES),
        "intercepts": numbers(targets) if intercepts else [],
        "targets": targets,
        "post_transform": post,
    }
    assert_like_onnxruntime(model_of("LinearRegressor", attributes), feeds())


def test_probit_of_probabilities() -> None:
    """Coefficients that keep scores between 0 and 1, the ends and NaN beyond them included."""
    attributes = {
        "coefficients": [1.0] + [0.0] * 4 + [0.0, 1.0] + [0.0] * 3,
        "targets": 2,
        "post_transform": "PROBIT",
    }
    x = np.linspace(-0.25, 1.25, 35, dtype=np.float32).reshape(7, FEATURES)
    assert_like_onnxruntime(model_of("LinearRegressor", attributes), [{"x": x}])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"coefficients": [1.0] * 7}, "coefficients"),
        ({"classlabels_ints": [1]}, "1 labels"),
        ({"coefficients": [1.0] * 5, "intercepts": [0.5], "classlabels_ints": [1]}, "two classes"),
        (
            {
                "coefficients": [1.0] * 5,
                "intercepts": [0.5],
                "classlabels_ints": [1, 2],
                "post_transform": "PROBIT",
            },
            "PROBIT",
        ),
        ({"post_transform": "TANH"}, "post_transform"),
        ({"classlabels_ints": [], "classlabels_strings": ["a", "b", "c"]}, "strings"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], message: str) -> None:
    attributes = {
        "coefficients": numbers(3, FEATURES),
        "intercepts": numbers(3),
        "classlabels_ints": [0, 1, 2],
    }
    with pytest.raises(ImportFailed, match=message):
        build(model_of("LinearClassifier", attributes | changes))
