"""`relaxd accuracy` on a real bundle, and as a gate of `relaxd ci`."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relaxd.cli.comparing import AccuracyFailed, judge_accuracy
from relaxd.cli.evaluating import Evaluation, read_evaluation
from relaxd.errors import DeclarationError

ROWS, CLASSES = 20, 6
FUNCTION = """
def share_of_positive(outputs, labels):
    assert outputs["y"].shape == (20, 6) and labels.shape == (20,)
    return (outputs["y"] > 0).mean()
"""


@pytest.fixture
def bundle(bundles: Path) -> Path:
    """y = scale * (x + every other column of wide)."""
    return bundles / "dims"


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """16 of 20 labels are the greatest of their row."""
    random = np.random.default_rng(0)
    x = random.standard_normal((ROWS, CLASSES), np.float32)
    wide = random.standard_normal((ROWS, 2 * CLASSES), np.float32)
    labels = (x + wide[:, ::2]).argmax(axis=1)
    labels[::5] = (labels[::5] + 1) % CLASSES
    path = tmp_path / "eval.npz"
    np.savez(path, x=x, wide=wide, scale=np.float32(2), label=labels)
    return path


def test_the_metric_of_a_bundle(relaxd: Any, bundle: Path, samples: Path) -> None:
    options = ("--samples", str(samples), "--labels", "label", "--batch", "8")
    measured = relaxd("accuracy", str(bundle), *options, "--min", "0.8")
    assert (measured.code, measured.out) == (0, "top-1: 0.8 (20 samples)\n")
    worse = relaxd("accuracy", str(bundle), *options, "--min", "0.81", "--json")
    assert worse.code == 4
    assert worse.json == {"metric": "top-1", "value": 0.8, "samples": 20, "failed": True}
    assert "0.8 is below 0.81" in worse.err
    assert relaxd("accuracy", str(bundle), *options, "--max", "0.79").code == 4
    Path("metrics.py").write_text(FUNCTION)
    function = ("--metric", "metrics.py:share_of_positive")
    measured = relaxd("accuracy", str(bundle), *options, *function, "--json")
    assert 0.3 < measured.json["value"] < 0.7


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--labels", "lable"), "did you mean label"),
        (("--labels", "absent.txt"), "cannot read absent.txt"),
        (("--labels", "label", "--metric", "top-5"), "unknown metric"),
        (("--labels", "label", "--metric", "absent.py:f"), "is not a Python file"),
        (("--labels", "label", "--metric", "broken.py:f"), "raised SyntaxError"),
        (("--labels", "label", "--metric", "empty.py:f"), "has no function 'f'"),
        (("--labels", "label", "--output", "z"), "has no output 'z'"),
        (("--labels", "label", "--samples", "short.npz"), "has shape [3, 6]"),
        (("--labels", "label", "--samples", "lacking.npz"), "has no input 'x'"),
        (("--labels", "label", "--samples", "text.npz"), "cannot read text.npz"),
    ],
)
def test_files_that_cannot_be_used(
    relaxd: Any, bundle: Path, samples: Path, arguments: tuple[str, ...], says: str
) -> None:
    for name, text in (("broken", "def"), ("empty", "")):
        Path(f"{name}.py").write_text(text)
    with np.load(samples) as content:
        arrays = dict(content)
    np.savez("short.npz", **{**arrays, "x": arrays["x"][:3]})
    np.savez("lacking.npz", **{name: arrays[name] for name in ("wide", "scale", "label")})
    Path("text.npz").write_text("no archive")
    ended = relaxd("accuracy", str(bundle), "--samples", str(samples), *arguments)
    assert ended.code == 2, ended.err
    assert says in ended.err


def test_the_gate_runs_both_bundles(
    bundle: Path, samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELAXD_TOKEN", "not for the library")
    function = tmp_path / "metrics.py"
    function.write_text(
        "import os\n\ndef f(outputs, labels):\n    return float('RELAXD_TOKEN' in os.environ)\n"
    )
    asked = Evaluation(samples, "label", f"{function}:f", batch=4, max=0.5, loss=0.0)
    outcome = judge_accuracy(bundle, bundle, asked)
    assert (outcome.gate, outcome.failed) == ("metrics.py:f", False)
    assert outcome.said == "0, the baseline 0 (20 samples)"
    other = tmp_path / "other"
    shutil.copytree(bundle, other)
    manifest = json.loads((other / "manifest.json").read_text())
    manifest["load"]["arch"] = "s390x"
    (other / "manifest.json").write_text(json.dumps(manifest))
    outcome = judge_accuracy(other, None, asked)
    assert not outcome.failed
    assert outcome.said.startswith("not run: ")
    with pytest.raises(AccuracyFailed, match="no labels 'absent'"):
        judge_accuracy(bundle, None, Evaluation(samples, "absent"))


@pytest.mark.parametrize(
    ("metric", "limits", "value", "baseline", "fails"),
    [
        ("top-1", {"min": 0.7}, 0.7, None, False),
        ("top-1", {"min": 0.7}, float("nan"), None, True),
        ("top-1", {"loss": 0.01}, 0.7, 0.72, True),
        ("top-1", {"loss": 0.01}, 0.73, 0.7, False),
        ("top-1", {"loss": 0.01}, 0.7, None, False),
        ("top-1", {"loss": 0.01}, float("nan"), 0.7, True),
        ("wer", {"max": 0.1}, 0.11, None, True),
        ("wer", {"loss": 0.01}, 0.12, 0.1, True),
        ("wer", {"loss": 0.01}, 0.1, 0.12, False),
        ("m.py:f", {"max": 1.0, "loss": 0.0}, 0.5, 0.4, True),
        ("m.py:f", {"loss": 0.0}, 0.5, 0.4, False),
    ],
)
def test_limits(
    metric: str, limits: dict[str, float], value: float, baseline: float | None, fails: bool
) -> None:
    failure = Evaluation(Path("a.npz"), metric=metric, **limits).failure(value, baseline)  # type: ignore[arg-type]
    assert (failure is not None) is fails


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("eval.npz", "no samples"),
        ({"metric": "f1"}, "no samples"),
        ({"samples": 3}, "samples of accuracy cannot be 3"),
        ({"samples": "a.npz", "min": "high"}, "min of accuracy"),
        ({"samples": "a.npz", "min": True}, "min of accuracy"),
        ({"samples": "a.npz", "loss": float("nan")}, "loss of accuracy"),
        ({"samples": "a.npz", "batch": 0}, "batch must be 1 or more"),
        ({"samples": "a.npz", "metrics": "f1"}, "unknown key 'metrics'"),
        ({"samples": "a.npz", "metric": "bleu"}, "unknown metric 'bleu'"),
    ],
)
def test_a_table_that_means_nothing(entry: Any, says: str) -> None:
    with pytest.raises(DeclarationError, match=says):
        read_evaluation(entry, Path())


def test_paths_begin_at_the_projects_folder() -> None:
    entry = {"samples": "a.npz", "labels": "b.txt", "metric": "m.py:f", "vocabulary": "v.txt"}
    read = read_evaluation({**entry, "min": 1, "batch": 32}, Path("p"))
    assert (read.samples, read.labels) == (Path("p/a.npz"), "p/b.txt")
    assert (read.metric, read.vocabulary, read.min) == ("p/m.py:f", Path("p/v.txt"), 1)
    assert read.batch == 32
