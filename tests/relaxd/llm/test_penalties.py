"""Penalties and biases of logits, against a plain loop over the vocabulary."""

from collections import Counter

import numpy as np
import pytest

from relaxd.llm.penalties import make_penalties
from relaxd.llm.sampling import Sampler, Sampling

VOCABULARY = 31
SETTINGS = (
    Sampling(presence_penalty=0.7),
    Sampling(frequency_penalty=-1.3),
    Sampling(repetition_penalty=1.7),
    Sampling(repetition_penalty=0.4, presence_penalty=-2, frequency_penalty=2),
    Sampling(logit_bias={0: 3.5, 30: -100, 7: 0.25}, repetition_penalty=2),
    Sampling(logit_bias={3: 1}, presence_penalty=1e-3),
)


def expect(logits: np.ndarray, sampling: Sampling, prompt: list[int], answer: list[int]) -> list:
    """The logits after one token at a time."""
    counts, result = Counter(answer), []
    for token, logit in enumerate(logits.astype(float)):
        logit += sampling.logit_bias.get(token, 0)
        if token in prompt or token in answer:
            factor = sampling.repetition_penalty
            logit = logit / factor if logit > 0 else logit * factor
        logit -= sampling.frequency_penalty * counts[token]
        logit -= sampling.presence_penalty * (counts[token] > 0)
        result.append(logit)
    return result


@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
def test_each_step_is_the_reference(sampling: Sampling) -> None:
    draw = np.random.default_rng(1)
    prompt, answer = draw.integers(0, VOCABULARY, 9).tolist(), []
    penalties = make_penalties(sampling, prompt)
    assert penalties is not None
    for step in range(20):
        logits = draw.standard_normal(VOCABULARY).astype(np.float32) * 5
        logits[[2, step]] = 0, -np.inf
        before = logits.copy()
        result = penalties.apply(logits)
        np.testing.assert_allclose(result, expect(logits, sampling, prompt, answer), rtol=1e-12)
        np.testing.assert_array_equal(logits, before)
        answer.append(int(draw.integers(0, VOCABULARY)))
        penalties.count(answer[-1])


def test_a_request_without_penalties_has_none() -> None:
    assert make_penalties(Sampling(temperature=1, top_k=3), [1, 2]) is None


def test_tokens_without_logits_are_left_alone() -> None:
    penalties = make_penalties(Sampling(logit_bias={99: 5.0}, repetition_penalty=2), [98, 1])
    assert penalties is not None
    assert penalties.apply(np.ones(3, np.float32)).tolist() == [1, 0.5, 1]


def test_a_copy_goes_on_by_itself() -> None:
    logits = np.array([3, 2.9, 0], np.float32)
    sampler = Sampler(Sampling(presence_penalty=1))
    copied = sampler.copy()
    assert [copied.choose(logits) for _ in range(3)] == [0, 1, 0]
    assert [sampler.choose(logits) for _ in range(3)] == [0, 1, 0]
