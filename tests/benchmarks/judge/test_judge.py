"""Faults that are planted, tasks that are planned, and the rates that are printed."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from benchmarks.judge import effect
from benchmarks.judge.__main__ import FAULTS_EACH, main, plan, rates
from benchmarks.judge.faults import FAULTS, MODEL_FAULTS, OUTPUT_FAULTS, is_applicable
from benchmarks.judge.outcome import ENDED, NO_EFFECT, NOT_BUILT, NOT_PLANTED, Outcome, Row, Task
from benchmarks.judge.subjects import FAULTED, QUICK, SUBJECTS
from tests.support import declared
from tests.support.geometries import GEOMETRIES

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
def test_a_fault_of_a_model_changes_what_it_computes(tmp_path: Path, name: str, fault: str) -> None:
    model = onnx.load(QUICK[name].file(tmp_path))
    before = outputs_of(model, name)
    if not MODEL_FAULTS[fault](model, np.random.default_rng(0), 4):
        pytest.skip("the model has nothing that this fault changes")
    onnx.checker.check_model(model)
    after = outputs_of(model, name)
    assert any(not np.array_equal(one, two) for one, two in zip(before, after, strict=True))


@pytest.mark.parametrize("fault", MODEL_FAULTS)
def test_every_fault_of_a_model_is_planted_in_one(tmp_path: Path, fault: str) -> None:
    planted = [
        MODEL_FAULTS[fault](onnx.load(subject.file(tmp_path)), np.random.default_rng(0), 4)
        for subject in QUICK.values()
    ]
    assert any(planted)


_BRANCHES = """<ir_version: 9, opset_import: ["": 17]>
g (bool b, float[n,2] x) => (float[n,2] y) {
    y = If (b) <
        then_branch = yes () => (float[n,2] t) {
            w = Constant<value = float[2,2] {1.0, 2.0, 3.0, 4.0}>()
            t = MatMul(x, w)
        },
        else_branch = no () => (float[n,2] e) { e = Identity(x) }
    >
}"""


@pytest.mark.parametrize("fault", ["swap_channels", "scale_weight", "scale_node", "drop_column"])
def test_faults_reach_branches_and_constants_of_nodes(fault: str) -> None:
    model = onnx.parser.parse_model(_BRANCHES)
    feed = {"b": np.array(True), "x": np.ones((3, 2), np.float32)}

    def run() -> np.ndarray:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        result: np.ndarray = session.run(None, feed)[0]
        return result

    before = run()
    assert MODEL_FAULTS[fault](model, np.random.default_rng(0), 4)
    assert not np.array_equal(before, run())


@pytest.mark.parametrize("fault", list(OUTPUT_FAULTS))
def test_a_fault_of_an_output_changes_it(fault: str) -> None:
    array = np.random.default_rng(0).standard_normal((3, 5, 40)).astype("float32")
    before = array.copy()
    OUTPUT_FAULTS[fault](array, 16)
    assert not np.array_equal(array, before)


@pytest.mark.parametrize(
    ("fault", "text", "applicable"),
    [
        ("last_of_tile", "y=float32[n,15]", False),
        ("last_of_tile", "y=float32[n,16]", True),
        ("last_of_tile", "y=float32[16,n]", True),
        ("tail", "y=float32[n,32]", False),
        ("tail", "y=float32[n,33]", True),
        ("mask_edge", "y=float32[n,16]", False),
        ("mask_edge", "y=float32[n,4,16]", True),
        ("last_column", "y=float32[n,1]", False),
    ],
)
def test_faults_are_planted_where_outputs_have_what_they_change(
    fault: str, text: str, applicable: bool
) -> None:
    assert is_applicable(fault, declared.spec(text), 16) is applicable


def test_rates_count_refused_builds_and_missed_faults() -> None:
    outcomes = [
        *[("", "passed"), ("", "failed"), ("", NOT_BUILT)],
        *[("scale", "failed"), ("scale", "statistical"), ("scale", ENDED)],
        *[("scale", NO_EFFECT), ("scale", NOT_PLANTED)],
    ]
    rows = [
        Row(Task("m", seed, fault), Outcome(verdict, 1.0, slack=0.05))
        for seed, (fault, verdict) in enumerate(outcomes)
    ]
    lines = list(rates(rows))
    assert lines[:6] == [
        "right builds refused: 2 of 3 of 1 models",
        "planted faults caught: 1 of 3 in 1 models",
        "without effect: 1",
        "not planted: 1",
        "not found: 0",
        "largest slack of what passed: 0.05 of the spread",
    ]
    wrong = [line.split()[0] for line in lines if not line.startswith(" ")][-4:]
    assert wrong == ["REFUSED", "REFUSED", "MISSED", "MISSED"]
    assert [Row.from_json(row.to_json()) for row in rows] == rows


def test_faults_of_every_kind_meet_every_vector_unit() -> None:
    assert len(FAULTED) == 30
    assert set(FAULTED) <= set(SUBJECTS)
    tasks = [task for task in plan(FAULTED[0], 5, 4 * len(FAULTS)) if task.fault]
    assert {(task.fault, task.geometry) for task in tasks} == {
        (fault, unit) for fault in FAULTS for unit in GEOMETRIES
    }
    assert sum(bool(task.fault) for task in plan(FAULTED[0], 5, None)) == FAULTS_EACH
    assert not any(task.fault for task in plan("encoder", 5, None))


@pytest.mark.parametrize(
    ("right", "faulty", "distance"),
    [
        ([1.0, 2.0], [1.0, 2.5], 0.5),
        ([np.nan, np.inf], [np.nan, np.inf], 0.0),
        ([1.0, 2.0], [1.0, np.nan], np.inf),
        ([1, 2, 3, 4], [1, 2, 3, 5], 0.25),
        ([1.0], [1.0, 1.0], np.inf),
    ],
)
def test_distances_of_outputs(right: list[float], faulty: list[float], distance: float) -> None:
    assert effect.distance(np.array(right), np.array(faulty)) == distance


@pytest.mark.slow
def test_a_run_goes_on_where_it_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rows.json"
    asked = ["--models", "encoder", "--seeds", "1", "--json", str(file), "--resume", "--faults"]
    assert main([*asked, "2"]) == 0
    before = file.read_text()
    assert "encoder seed 1 128/32 swap_channels 1: failed" in capsys.readouterr().out
    assert main([*asked, "2"]) == 0
    assert file.read_text() == before
    assert "swap_channels" not in capsys.readouterr().out
