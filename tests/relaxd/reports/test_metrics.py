import math
from collections.abc import Mapping

import numpy as np
import pytest

from relaxd.reports.metrics import (
    IGNORED,
    Custom,
    MacroF1,
    Metric,
    MetricError,
    Perplexity,
    Top1,
    WordErrorRate,
)

LOGITS = np.array([[3.0, 1, 0], [0, 2, 1], [0, 1, 5], [9, 0, 0]], np.float32)


def measure(metric: Metric, output: np.ndarray, labels: np.ndarray, batch: int = 3) -> float:
    """Over batches of which the last is smaller."""
    for first in range(0, len(labels), batch):
        part = slice(first, first + batch)
        metric.add({"y": output[part]}, labels[part])
    return metric.value()


def test_top_1_of_logits_and_of_integers() -> None:
    labels = np.array([0, 1, 1, 0])
    assert measure(Top1("y"), LOGITS, labels) == 0.75
    assert measure(Top1("y"), np.array([0, 1, 2, 0], np.int32), labels) == 0.75
    assert measure(Top1("y"), LOGITS, np.array([0, IGNORED, 1, IGNORED])) == 0.5
    assert measure(Top1("y"), LOGITS.astype(np.float16), labels) == 0.75


def test_f1_is_the_mean_over_classes() -> None:
    # Class 0: TP 2; class 1: TP 1, FN 1; class 2: FP 1.
    labels = np.array([0, 1, 1, 0])
    assert measure(MacroF1("y"), LOGITS, labels) == pytest.approx((1 + 2 / 3 + 0) / 3)
    assert measure(MacroF1("y"), LOGITS, np.array([0, 1, 2, 0])) == 1.0


def test_perplexity_is_that_of_the_softmax() -> None:
    uniform = np.full((2, 3, 50), 1e4, np.float32)
    labels = np.array([[1, 2, IGNORED], [49, 0, 7]])
    assert measure(Perplexity("y"), uniform, labels) == pytest.approx(50)
    logits = np.log(np.array([[0.25, 0.75], [0.5, 0.5]]))
    expected = math.exp(-(math.log(0.75) + math.log(0.5)) / 2)
    assert measure(Perplexity("y"), logits, np.array([1, 0])) == pytest.approx(expected)
    assert math.isnan(measure(Perplexity("y"), np.full((1, 2), np.nan), np.array([0])))
    assert measure(Perplexity("y"), np.array([[0.0, 2000.0]]), np.array([0])) == math.inf


def test_word_errors_of_text_decoded_as_ctc() -> None:
    vocabulary = ["<pad>", "|", "c", "a", "t", "s"]
    tokens = [2, 2, 0, 3, 4, 1, 1, 5, 3, 0, 4]  # "cat sat"
    output = np.eye(len(vocabulary), dtype=np.float32)[tokens][None]
    rate = WordErrorRate("y", vocabulary)
    assert measure(rate, output, np.array(["cat sat"])) == 0
    # One word is replaced, one is missing.
    rate = WordErrorRate("y", vocabulary)
    assert measure(rate, output, np.array(["cats sat at"])) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("predicted", "expected", "rate"),
    [
        ([1, 2, 3], [1, 2, 3], 0.0),
        ([1, 2, 3], [1, 3, IGNORED], 0.5),
        ([IGNORED, IGNORED, IGNORED], [1, 2, 3], 1.0),
        ([3, 1, 2], [1, 2, 3], 2 / 3),
    ],
)
def test_word_errors_of_tokens(predicted: list[int], expected: list[int], rate: float) -> None:
    value = measure(WordErrorRate("y"), np.array([predicted]), np.array([expected]))
    assert value == pytest.approx(rate)


def test_a_function_gets_all_rows_in_order() -> None:
    def count_above(outputs: Mapping[str, np.ndarray], labels: np.ndarray) -> float:
        assert outputs["y"].shape == (4, 3)
        return float((outputs["y"].max(axis=1) > labels).sum())

    assert measure(Custom(count_above), LOGITS, np.array([2.5, 2.5, 2.5, 10])) == 2


def raise_key_error(outputs: Mapping[str, np.ndarray], labels: np.ndarray) -> float:
    raise KeyError("absent")


@pytest.mark.parametrize(
    ("metric", "output", "labels", "says"),
    [
        (Top1("y"), LOGITS, np.array([[0], [1], [1], [0]]), "shape"),
        (Top1("y"), LOGITS, np.array([0.0, 1, 1, 0]), "integers"),
        (Top1("y"), LOGITS, np.full(4, IGNORED), "no label counts"),
        (MacroF1("y"), np.zeros(4, np.float32), np.zeros(4, int), "shape"),
        (Perplexity("y"), LOGITS, np.array([0, 1, 3, 0]), "0 to 2"),
        (Perplexity("y"), LOGITS, np.array([0, 1, -1, 0]), "0 to 2"),
        (WordErrorRate("y"), LOGITS[None], np.array(["cat"]), "no vocabulary"),
        (WordErrorRate("y", ["a", "b"]), LOGITS[None], np.array(["cat"]), "beyond the vocabulary"),
        (WordErrorRate("y"), LOGITS, np.zeros((4, 3), int), "shape"),
        (Custom(raise_key_error), LOGITS, np.zeros(4), "KeyError: 'absent'"),
    ],
)
def test_what_cannot_be_compared(
    metric: Metric, output: np.ndarray, labels: np.ndarray, says: str
) -> None:
    with pytest.raises(MetricError, match=says):
        measure(metric, output, labels)
