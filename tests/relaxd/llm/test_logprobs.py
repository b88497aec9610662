"""Log probabilities of tokens."""

import numpy as np
import pytest

from relaxd.errors import ExecutionError
from relaxd.llm.logprobs import LEAST_LOGPROB, measure_logprob


def test_the_token_and_the_most_probable_ones() -> None:
    logits = np.random.default_rng(0).standard_normal(97).astype(np.float32) * 4
    values = logits.astype(np.float64)
    expected = values - np.log(np.exp(values).sum())
    result = measure_logprob(logits, 13, 5)
    assert result.token == 13
    assert result.logprob == pytest.approx(expected[13], rel=1e-12)
    order = np.argsort(-expected)[:5]
    assert [token for token, _ in result.top] == order.tolist()
    np.testing.assert_allclose([value for _, value in result.top], expected[order], rtol=1e-12)


def test_of_equal_tokens_the_first_and_of_none_nothing() -> None:
    assert [token for token, _ in measure_logprob(np.zeros(9), 4, 3).top] == [0, 1, 2]
    assert measure_logprob(np.zeros(9), 4, 0).top == ()
    assert len(measure_logprob(np.zeros(2), 1, 20).top) == 2


def test_logits_that_are_not_finite() -> None:
    logits = np.array([1, -np.inf, 2], np.float32)
    result = measure_logprob(logits, 1, 3)
    assert (result.logprob, result.top[-1]) == (LEAST_LOGPROB, (1, LEAST_LOGPROB))
    for wrong in (np.nan, np.inf):
        with pytest.raises(ExecutionError, match="not finite"):
            measure_logprob(np.array([1, wrong], np.float32), 0, 1)
    with pytest.raises(ExecutionError, match="not finite"):
        measure_logprob(np.full(3, -np.inf), 0, 1)
