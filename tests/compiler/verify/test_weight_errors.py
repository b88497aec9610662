"""The error of quantized weights, beside the formulas written out."""

from collections.abc import Iterable

import numpy as np
import pytest

from compiler.verify import weight_errors as module
from compiler.verify.weight_errors import OutputError


def weight_errors(pairs: Iterable[tuple[str, np.ndarray, np.ndarray]]) -> list[OutputError]:
    errors: dict[str, OutputError] = {}
    for name, got, want in pairs:
        errors.setdefault(name, OutputError(name)).add(got, want)
    return list(errors.values())


def softmax(rows: np.ndarray) -> np.ndarray:
    exact = np.exp(rows - rows.max(-1, keepdims=True))
    return exact / exact.sum(-1, keepdims=True)


def test_all_points_count_by_their_elements() -> None:
    random = np.random.default_rng(0)
    pairs = []
    for rows in (1, 7, 0, 13):
        right = random.standard_normal((rows, 5)).astype(np.float32)
        pairs.append(("y", right + np.float32(0.1) * random.standard_normal((rows, 5)), right))
    got, want = (np.concatenate([pair[i] for pair in pairs]).astype(np.float64) for i in (1, 2))
    (error,) = [one.to_json() for one in weight_errors(pairs)]
    apart = got - want
    assert error["error"] == pytest.approx(np.sqrt((apart**2).sum() / (want**2).sum()))
    assert error["max_abs"] == pytest.approx(np.abs(apart).max())
    assert error["mean_abs"] == pytest.approx(np.abs(apart).mean())
    cosine = (got * want).sum() / np.linalg.norm(got) / np.linalg.norm(want)
    assert error["cosine"] == pytest.approx(cosine)
    assert error["argmax"] == pytest.approx((got.argmax(1) == want.argmax(1)).mean())
    p, q = softmax(want), softmax(got)
    assert error["divergence"] == pytest.approx((p * np.log(p / q)).sum(1).mean())


def test_probabilities_are_taken_as_they_are() -> None:
    p = softmax(np.random.default_rng(1).standard_normal((4, 6)))
    q = softmax(np.random.default_rng(2).standard_normal((4, 6)))
    (error,) = weight_errors([("p", q, p)])
    assert error.to_json()["divergence"] == pytest.approx((p * np.log(p / q)).sum(1).mean())


def test_outputs_that_say_nothing() -> None:
    """Integers and vectors have no rows of classes; an output of zeros has no share."""
    integers = np.array([[1, 2]], np.int64)
    errors = {
        one.name: one.to_json()
        for one in weight_errors(
            [
                ("same", np.zeros(3), np.zeros(3)),
                ("zero", np.ones(3), np.zeros(3)),
                ("whole", integers, integers),
                ("masked", np.full((1, 2), -np.inf), np.full((1, 2), -np.inf)),
            ]
        )
    }
    assert (errors["same"]["error"], errors["same"]["argmax"]) == (0.0, None)
    assert errors["zero"]["error"] is None
    assert (errors["whole"]["error"], errors["whole"]["divergence"]) == (0.0, None)
    assert (errors["masked"]["error"], errors["masked"]["argmax"]) == (0.0, None)


@pytest.mark.parametrize("lost", [np.inf, np.nan])
def test_a_number_that_is_lost_is_an_infinite_error(lost: float) -> None:
    want = np.array([1.0, 2.0, np.inf, np.nan])
    (same,) = weight_errors([("y", want, want)])
    assert same.error == 0
    (error,) = weight_errors([("y", np.array([1.0, lost, np.inf, np.nan]), want)])
    assert error.error == np.inf
    assert error.to_json()["error"] is None


def test_blocks_add_up_to_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(3)
    want = random.standard_normal((37, 11)).astype(np.float32)
    got = want + np.float32(0.3) * random.standard_normal(want.shape).astype(np.float32)
    got[5, 2] = want[5, 2] = np.inf
    at_once, parts, rowless = OutputError("y"), OutputError("y"), OutputError("y")
    at_once.add(got, want)
    monkeypatch.setattr(module, "_BLOCK", 25)
    parts.add(got[:20], want[:20])
    other = OutputError("y")
    other.add(got[20:], want[20:])
    assert (parts + other).to_json() == pytest.approx(at_once.to_json())
    rowless.add(got, want, rows=False)
    assert rowless.error == pytest.approx(at_once.error)
    assert (rowless.rows, rowless.to_json()["argmax"]) == (0, None)
    other.add(np.full((1, 11), np.nan), want[:1])
    assert (parts + other).error == np.inf
