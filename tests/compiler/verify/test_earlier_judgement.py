"""Builds of code that an earlier build judged with other weights: what is compared again."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import numpy_helper

from compiler.build import build
from compiler.bundle import weights
from compiler.errors import CompileError
from compiler.isolation.messages import CompileJob, Event, Progress
from compiler.verify.ahead import Ahead
from relaxd.contract.request import CompileRequest
from tests.support.models.small import perceptron

DIMS = {"batch": "1:5", "seq": "1:40"}


class Builder:
    """Builds one after another, each with the objects that those before left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.messages: list[str] = []
        self._count = 0

    def build(self, scale: float = 1.0, note: str = "", **request: Any) -> dict[str, Any]:
        """The report of a build of a model whose weights are multiplied."""
        self._count += 1
        folder = self.folder / str(self._count)
        folder.mkdir()
        model = perceptron()
        for initializer in model.graph.initializer:
            array = numpy_helper.to_array(initializer) * np.float32(scale)
            initializer.CopyFrom(numpy_helper.from_array(array, initializer.name))
        model.graph.node[0].doc_string = note
        onnx.save(model, folder / "m.onnx")
        declared: dict[str, Any] = {"dims": DIMS, "options": {"profile": False}} | request
        objects = str(self.folder / "objects")
        job = CompileJob(
            str(folder / "m.onnx"),
            CompileRequest.of(**declared).to_json(),
            "native",
            str(folder / "out"),
            "m",
            kernels=objects,
            fresh_kernels=objects,
        )
        self.messages.clear()
        build(job, self._hear)
        return dict(json.loads((folder / "out" / "numerics.json").read_text()))

    def _hear(self, event: Event) -> None:
        if isinstance(event, Progress) and event.message:
            self.messages.append(event.message)


@pytest.fixture
def builder(tmp_path: Path) -> Builder:
    return Builder(tmp_path)


def labels(report: dict[str, Any]) -> list[str]:
    return [point["label"] for point in report["points"]]


def test_equal_code_with_other_weights_is_compared_at_two_points(builder: Builder) -> None:
    first = builder.build()
    assert len(first["points"]) > 4
    assert "earlier" not in first
    second = builder.build(1.5)
    assert labels(second) == ["min", "opt"]
    assert second["earlier"] == {"points": first["points"], "reference": first["reference"]}
    assert second["verified_up_to"] == first["verified_up_to"] == {"batch": 5, "seq": 40}
    assert second["verdict"] == "passed"
    assert second["warnings"] == first["warnings"] == []
    count = len(first["points"])
    assert f"an earlier build judged this code at {count} shapes" in builder.messages
    # What was compared at two points is no record for others.
    assert builder.build(2.0)["earlier"] == second["earlier"]


def test_the_reference_is_not_asked_ahead_where_two_points_are_likely_left(
    builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws: list[Ahead] = []
    draw = Ahead.draw
    monkeypatch.setattr(Ahead, "draw", lambda ahead, of: draws.append(ahead) or draw(ahead, of))
    builder.build()
    assert len(draws) == 1
    assert "earlier" in builder.build(1.5)
    assert len(draws) == 1
    # The mark is of the request, the judgement of the code: another note is another model.
    assert "earlier" not in builder.build(1.5, note="another")
    assert len(draws) == 2


def test_the_same_model_again_is_compared_whole_and_its_report_is_the_same(
    builder: Builder,
) -> None:
    first = builder.build()
    assert builder.build() == first


def damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights are written wrong from now on."""
    write = weights.write

    def write_others(constants: Sequence[Any], path: Path) -> weights.Written:
        return write([tvm.runtime.tensor(1 - each.numpy()) for each in constants], path)

    monkeypatch.setattr(weights, "write", write_others)


def test_weights_are_judged_all_the_same(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    builder.build()
    damage(monkeypatch)
    with pytest.raises(CompileError) as caught:
        builder.build(1.5)
    assert caught.value.code == "verify.mismatch"


@pytest.mark.parametrize(
    "changed",
    [
        {"dims": DIMS | {"seq": "1:41"}},
        {"options": {"profile": False, "rtol": 1e-2}},
        {"options": {"profile": False, "weights": "int8"}},
    ],
)
def test_another_request_is_compared_whole(builder: Builder, changed: dict[str, Any]) -> None:
    builder.build()
    report = builder.build(1.5, **changed)
    assert "earlier" not in report
    assert len(report["points"]) > 4


def test_another_model_of_equal_code_is_compared_whole(builder: Builder) -> None:
    """An importer that leaves out what a node states makes the same code of two models."""
    builder.build()
    assert "earlier" not in builder.build(1.5, note="another")


def test_quantized_weights_are_compared_whole(builder: Builder) -> None:
    options = {"profile": False, "weights": "int8"}
    builder.build(options=options)
    assert "earlier" not in builder.build(1.5, options=options)


def test_a_build_that_disagrees_leaves_nothing(
    builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        damage(patched)
        with pytest.raises(CompileError):
            builder.build()
    assert "earlier" not in builder.build(1.5)
