"""Support vector machines against ONNX Runtime."""

from typing import Any

import numpy as np
import pytest

from compiler.errors import ImportFailed
from tests.compiler.ir.onnx.operators.test_linear_models import (
    FEATURES,
    feeds,
    model_of,
    numbers,
)
from tests.compiler.ir.onnx.running import assert_like_onnxruntime, build

PARAMETERS = {
    "LINEAR": [0.0, 0.0, 0.0],
    "POLY": [0.25, -0.5, 3.0],
    "RBF": [0.125, 0.0, 0.0],
    "SIGMOID": [0.25, 0.5, 0.0],
}


def regressor(kernel: str, **changes: Any) -> dict[str, Any]:
    return {
        "kernel_type": kernel,
        "kernel_params": PARAMETERS[kernel],
        "n_supports": 9,
        "support_vectors": numbers(9, FEATURES),
        "coefficients": numbers(9),
        "rho": [0.5],
        **changes,
    }


def classifier(kernel: str, per_class: list[int], **changes: Any) -> dict[str, Any]:
    classes, total = len(per_class), sum(per_class)
    pairs = classes * (classes - 1) // 2
    return {
        "kernel_type": kernel,
        "kernel_params": PARAMETERS[kernel],
        "vectors_per_class": per_class,
        "support_vectors": numbers(total, FEATURES),
        "coefficients": numbers(classes - 1, total),
        "rho": numbers(pairs),
        "classlabels_ints": [5, 2, 8, -1][:classes],
        **changes,
    }


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_regressor(kernel: str) -> None:
    assert_like_onnxruntime(model_of("SVMRegressor", regressor(kernel)), feeds())


@pytest.mark.parametrize(
    "changes", [{"one_class": 1}, {"n_supports": 0, "coefficients": numbers(FEATURES)}]
)
def test_regressor_of_one_class_and_without_vectors(changes: dict[str, Any]) -> None:
    assert_like_onnxruntime(model_of("SVMRegressor", regressor("LINEAR", **changes)), feeds())


@pytest.mark.parametrize(
    ("kernel", "per_class", "post"),
    [
        ("RBF", [3, 4], "NONE"),
        ("LINEAR", [3, 4], "LOGISTIC"),
        ("RBF", [3, 0, 5, 2], "NONE"),
        ("POLY", [3, 1, 5], "SOFTMAX"),
    ],
)
def test_classifier(kernel: str, per_class: list[int], post: str) -> None:
    attributes = classifier(kernel, per_class, post_transform=post)
    assert_like_onnxruntime(model_of("SVMClassifier", attributes), feeds())


@pytest.mark.parametrize("per_class", [[3, 4], [3, 2, 5, 2]])
def test_probabilities(per_class: list[int]) -> None:
    pairs = len(per_class) * (len(per_class) - 1) // 2
    platt = {"prob_a": [-value for value in numbers(pairs, 3)[:pairs]], "prob_b": numbers(pairs)}
    attributes = classifier("RBF", per_class, **platt)
    assert_like_onnxruntime(model_of("SVMClassifier", attributes), feeds())


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
def test_classifier_without_vectors(classes: int, positive: bool) -> None:
    weights = np.asarray(numbers(classes, FEATURES))
    attributes = classifier(
        "LINEAR",
        [0] * classes,
        vectors_per_class=[],
        support_vectors=[],
        coefficients=(np.abs(weights) if positive else weights).tolist(),
        rho=[0.25],
    )
    assert_like_onnxruntime(model_of("SVMClassifier", attributes), feeds())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"support_vectors": numbers(33)}, "support vectors"),
        ({"support_vectors": numbers(7, 4)}, "features"),
        ({"coefficients": [1.0]}, "coefficients"),
        ({"rho": []}, "rho"),
        ({"kernel_type": "COSINE"}, "kernel_type"),
        ({"vectors_per_class": [8, -1]}, "vectors_per_class"),
        (
            {"vectors_per_class": [(1 << 63) - 1] * 2 + [9], "classlabels_ints": [1, 2, 3]},
            "vectors_per_class",
        ),
        ({"prob_a": [1.0]}, "prob_b"),
        ({"classlabels_ints": []}, "no classes"),
        ({"post_transform": "PROBIT"}, "PROBIT"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ImportFailed, match=message):
        build(model_of("SVMClassifier", classifier("RBF", [3, 4], **changes)))
