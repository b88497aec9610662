"""Errors against float64, and the page that is drawn from them."""

import numpy as np
import onnxruntime
import pytest

from benchmarks.accuracy import page
from benchmarks.accuracy.errors import LEAST, Error, measure, summary
from benchmarks.accuracy.kinds import kinds

KINDS = list(kinds())


def test_an_error_is_a_share_of_the_spread():
    want = [np.array([1.0, -1.0, 1.0, -1.0]) * 10]
    error = Error.of([want[0] + np.array([0, 0, 0, 0.2])], want)
    assert error.rms == pytest.approx(0.01)
    assert error.largest == pytest.approx(0.02)


def test_an_exact_result_has_the_least_error_and_integers_none():
    want = [np.arange(3.0), np.arange(3)]
    assert Error.of([np.arange(3.0), np.arange(3) + 1], want) == Error(LEAST, LEAST)


@pytest.mark.parametrize("got", [np.zeros(2), np.array([np.nan, 0, 0])])
def test_a_result_of_another_kind_is_refused(got):
    with pytest.raises(ValueError, match="a result"):
        Error.of([got], [np.zeros(3)])


def test_the_ratio_is_to_the_better_peer():
    errors = {"relaxd": 4e-7, "onnxruntime": 2e-7, "openvino": 8e-7}
    row = summary({name: {"noise": Error(error, 2 * error)} for name, error in errors.items()})
    assert row["ratio"] == pytest.approx(2)
    assert row["largest_ratio"] == pytest.approx(2)
    assert summary({"relaxd": {"noise": Error(1e-7, 1e-7)}})["ratio"] is None


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.group} {kind.name}")
def test_every_kind_is_a_model_that_runs_on_its_inputs(kind):
    session = onnxruntime.InferenceSession(
        kind.model().SerializeToString(), providers=["CPUExecutionProvider"]
    )
    for _, feed in kind.subject().feeds():
        (got,) = session.run(None, feed)
        assert got.dtype == np.float32
        assert np.isfinite(got).all()


def test_names_of_kinds_differ():
    names = [(kind.group, kind.name) for kind in KINDS]
    assert len(set(names)) == len(names)


def test_a_row_of_a_kind_becomes_a_line_of_the_page():
    kind = next(kind for kind in KINDS if kind.name == "100x64x192")
    row = measure(kind.subject(), ["relaxd", "onnxruntime"])
    assert row["kernels"] == ["matmul"]
    assert not row["failures"]
    assert 0.5 < row["ratio"] < 2
    document = page.with_row(page.with_row(page.begin(["relaxd"]), row), row)
    assert len(document["rows"]) == 1
    text = page.section(document)
    assert "Above 2: none" in text
    assert "| matmul | 100x64x192 |" in text
    assert "Above 2: matmul 100x64x192" in page.section({**document, "rows": [{**row, "ratio": 3}]})
