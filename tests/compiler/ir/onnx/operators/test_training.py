"""Losses and the steps of optimisers at several shapes, against onnx's own evaluator."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from tests.compiler.ir.onnx.running import assert_close, build, model_of, normal

NODE = helper.make_node
PREVIEW = "ai.onnx.preview.training"


def scores(n: int, c: int, *rest: int) -> dict[str, np.ndarray]:
    target = np.random.default_rng(n).integers(0, c, (n, *rest))
    return {"x": normal(n, c, *rest), "t": target, "w": np.abs(normal(c)) + np.float32(0.1)}


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("ignored", [None, 1])
def test_cross_entropy(reduction: str, ignored: int | None) -> None:
    attributes: dict[str, Any] = {"reduction": reduction} | (
        {} if ignored is None else {"ignore_index": ignored}
    )
    node = NODE("SoftmaxCrossEntropyLoss", ["x", "t", "w"], ["loss", "log"], **attributes)
    model = model_of([node], {"x": "float32[n,c,d]", "t": "int64[n,d]", "w": "float32[c]"})
    built, evaluator = build(model), ReferenceEvaluator(model)
    for shape in ((1, 2, 1), (3, 5, 7), (2, 11, 4)):
        feed = scores(*shape)
        feed["t"].flat[0] = 0
        assert_close(built.run(feed), evaluator.run(None, feed), ["loss", "log"])


@pytest.mark.parametrize("target", [5, -6])
def test_a_target_that_is_no_class_is_an_error(target: int) -> None:
    built = build(
        model_of(
            [NODE("NegativeLogLikelihoodLoss", ["x", "t"], ["y"])],
            {"x": "float32[n,c]", "t": "int64[n]"},
        )
    )
    feed = {"x": normal(2, 5), "t": np.array([4, 0])}
    assert_close(built.run(feed), [np.asarray(-feed["x"][[0, 1], [4, 0]].mean())], ["y"])
    with pytest.raises(RuntimeError, match="match_cast"):
        built.run(feed | {"t": np.array([0, target])})


@pytest.mark.parametrize(
    ("op", "state", "attributes"),
    [
        ("Adagrad", ["h"], {"norm_coefficient": 0.01, "epsilon": 1e-5, "decay_factor": 0.1}),
        (
            "Adam",
            ["v", "h"],
            {
                "norm_coefficient": 0.01,
                "alpha": 0.95,
                "beta": 0.1,
                "epsilon": 1e-7,
                "norm_coefficient_post": 0.02,
            },
        ),
        (
            "Momentum",
            ["v"],
            {"norm_coefficient": 0.01, "alpha": 0.95, "beta": 0.1, "mode": "nesterov"},
        ),
        (
            "Momentum",
            ["v"],
            {"norm_coefficient": 0.01, "alpha": 0.95, "beta": 0.1, "mode": "standard"},
        ),
    ],
)
def test_steps(op: str, state: list[str], attributes: dict[str, Any]) -> None:
    names = ["x", "g", *state]
    outputs = [f"{name}_new" for name in ("x", *state)]
    node = NODE(op, ["rate", "step", *names], outputs, domain=PREVIEW, **attributes)
    inputs = {"rate": "float32[]", "step": "int64[]"} | {
        name: f"float32[{name}0,k]" for name in names
    }
    model = model_of([node], inputs)
    model.opset_import.append(helper.make_opsetid(PREVIEW, 1))
    built, evaluator = build(model), ReferenceEvaluator(model)
    for step, shape in ((0, (2, 3)), (1, (1, 1)), (7, (5, 4))):
        feed = {"rate": np.array(0.1, np.float32), "step": np.array(step)}
        feed |= {name: np.abs(normal(*shape, seed=seed)) for seed, name in enumerate(names)}
        assert_close(
            built.run(feed),
            [wanted.astype(np.float32) for wanted in evaluator.run(None, feed)],
            outputs,
        )


def test_dropout_that_never_drops_draws_nothing() -> None:
    def model(training: bool, ratio: float) -> onnx.ModelProto:
        known = {"ratio": np.array(ratio, np.float32), "training": np.array(training)}
        return model_of(
            [NODE("Dropout", ["x", "ratio", "training"], ["y", "mask"])], {"x": "float32[n]"}, known
        )

    for harmless in (model(False, 0.5), model(True, 0.0)):
        x = normal(3)
        assert_close(build(harmless).run({"x": x}), [x, np.ones(3, bool)], ["y", "mask"], 0)
