"""Choosing tokens: greedily, and by chance within top_k and top_p."""

import numpy as np
import pytest

from relaxd.errors import InputError
from relaxd.llm.sampling import Sampler, Sampling, probabilities

SCORES = np.log(np.array([0.1, 0.4, 0.05, 0.3, 0.15], np.float32))


def test_without_temperature_the_most_probable_token_is_taken() -> None:
    assert Sampler(Sampling()).choose(SCORES) == 1
    assert Sampler(Sampling()).choose(np.zeros(4, np.float32)) == 0


@pytest.mark.parametrize(
    ("sampling", "tokens", "chances"),
    [
        (Sampling(temperature=1), [1, 3, 4, 0, 2], [0.4, 0.3, 0.15, 0.1, 0.05]),
        (Sampling(temperature=1, top_k=2), [1, 3], [4 / 7, 3 / 7]),
        (Sampling(temperature=1, top_p=0.7), [1, 3], [4 / 7, 3 / 7]),
        (Sampling(temperature=1, top_p=0.71), [1, 3, 4], [40 / 85, 30 / 85, 15 / 85]),
        (Sampling(temperature=1, top_p=1e-9), [1], [1]),
        (Sampling(temperature=0.5, top_k=2), [1, 3], [16 / 25, 9 / 25]),
        (Sampling(temperature=1, top_k=99), [1, 3, 4, 0, 2], [0.4, 0.3, 0.15, 0.1, 0.05]),
    ],
    ids=str,
)
def test_what_may_be_chosen(sampling: Sampling, tokens: list[int], chances: list[float]) -> None:
    result, shares = probabilities(SCORES, sampling)
    assert result.tolist() == tokens
    np.testing.assert_allclose(shares, chances, rtol=1e-6)


def test_draws_follow_the_probabilities_and_the_seed() -> None:
    sampler = Sampler(Sampling(temperature=1, seed=3))
    sampled = [sampler.choose(SCORES) for _ in range(4000)]
    shares = np.bincount(sampled, minlength=5) / len(sampled)
    np.testing.assert_allclose(shares, np.exp(SCORES), atol=0.03)
    again = Sampler(Sampling(temperature=1, seed=3))
    assert [again.choose(SCORES) for _ in range(50)] == sampled[:50]


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -1},
        {"temperature": float("nan")},
        {"top_p": 0},
        {"top_p": 1.5},
        {"top_k": -1},
        {"max_tokens": 0},
        {"stop": ("",)},
        {"seed": -1},
    ],
    ids=str,
)
def test_settings_that_mean_nothing(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        Sampling(**wrong)  # type: ignore[arg-type]
