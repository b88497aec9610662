"""Faults that are planted, and the rates that are printed."""

import numpy as np
import onnx
import onnxruntime
import pytest

from benchmarks.judge.__main__ import Row, rates
from benchmarks.judge.faults import MODEL_FAULTS, OUTPUT_FAULTS, is_applicable
from benchmarks.judge.subjects import QUICK
from benchmarks.judge.trial import Outcome
from tests import declared

FEEDS: dict[str, dict[str, tuple[int, ...]]] = {
    "convolutions": {"x": (2, 3, 9, 8)},
    "encoder": {"x": (2, 7, 32), "mask": (2, 7)},
    "quantized": {"x": (5, 64)},
}


def outputs_of(model: onnx.ModelProto, name: str) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    feed = {
        key: np.ones(shape, bool) if key == "mask" else random.standard_normal(shape, np.float32)
        for key, shape in FEEDS[name].items()
    }
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    results: list[np.ndarray] = session.run(None, feed)
    return results


@pytest.mark.parametrize("name", list(QUICK))
@pytest.mark.parametrize("fault", MODEL_FAULTS)
def test_a_fault_of_a_model_changes_what_it_computes(name: str, fault: object) -> None:
    model = QUICK[name].model()
    before = outputs_of(model, name)
    assert callable(fault)
    if not fault(model, np.random.default_rng(0)):
        pytest.skip("the model has nothing that this fault changes")
    onnx.checker.check_model(model)
    after = outputs_of(model, name)
    assert any(not np.array_equal(one, two) for one, two in zip(before, after, strict=True))


@pytest.mark.parametrize("fault", list(OUTPUT_FAULTS))
def test_a_fault_of_an_output_changes_it(fault: str) -> None:
    array = np.random.default_rng(0).standard_normal((3, 5, 40)).astype("float32")
    before = array.copy()
    OUTPUT_FAULTS[fault](array)
    assert not np.array_equal(array, before)


@pytest.mark.parametrize(
    ("fault", "text", "applicable"),
    [
        ("last_of_tile", "y=float32[n,15]", False),
        ("last_of_tile", "y=float32[n,16]", True),
        ("last_of_tile", "y=float32[16,n]", True),
        ("mask_edge", "y=float32[n,16]", False),
        ("mask_edge", "y=float32[n,4,16]", True),
        ("last_column", "y=float32[n,1]", False),
    ],
)
def test_faults_are_planted_where_outputs_have_what_they_change(
    fault: str, text: str, applicable: bool
) -> None:
    assert is_applicable(fault, declared.spec(text)) is applicable


def test_rates_count_refused_builds_and_missed_faults() -> None:
    verdicts = [("", "passed"), ("", "failed"), ("scale", "failed"), ("scale", "statistical")]
    rows = [Row("m", 0, fault, Outcome(verdict, 1.0, slack=0.05)) for fault, verdict in verdicts]
    lines = list(rates(rows))
    assert lines[:3] == [
        "right builds refused: 1 of 2",
        "planted faults caught: 1 of 2",
        "largest slack of what passed: 0.05 of the spread",
    ]
    assert [line.split()[0] for line in lines[3:]] == ["REFUSED", "MISSED"]
