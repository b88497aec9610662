"""Chooses a token by the scores that a model gives to all of them."""

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from relaxd.errors import ExecutionError, InputError
from relaxd.llm.grammar import Grammar

_MOST_STOPS = 16
_LONGEST_STOP = 1000
_LEAST_TEMPERATURE = 1e-100
"""Below it, logits that are divided by it may overflow."""


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen, and where a text ends.

    temperature: 0 takes the most probable token; top_k: of how many tokens, 0 for all; top_p: of
    the most probable ones that together reach this probability.
    seed: of the draws, None for another one each time.
    max_tokens: None for as many as the caches hold; stop: texts that end the answer, without them.
    grammar: what the answer's text has to match; other tokens are left out before one is chosen.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    grammar: Grammar | None = None

    def __post_init__(self) -> None:
        for holds, what in (
            (0 <= self.temperature <= 100, "temperature must be 0 to 100"),
            (self.top_k >= 0, "top_k must be at least 0"),
            (0 < self.top_p <= 1, "top_p must be above 0 and at most 1"),
            (self.seed is None or 0 <= self.seed < 1 << 64, "seed must have 64 bits"),
            (self.max_tokens is None or self.max_tokens > 0, "max_tokens must be at least 1"),
            (len(self.stop) <= _MOST_STOPS, f"there are more than {_MOST_STOPS} stops"),
            (all(self.stop), "a stop is empty"),
            (
                all(len(stop) <= _LONGEST_STOP for stop in self.stop),
                f"a stop has more than {_LONGEST_STOP} characters",
            ),
        ):
            if not holds:
                raise InputError(what)


class Sampler:
    """Draws the tokens of one answer."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._random = np.random.default_rng(sampling.seed)

    def copy(self) -> "Sampler":
        """Another one that makes the same draws from here on."""
        sampler = Sampler.__new__(Sampler)
        sampler._sampling, sampler._random = self._sampling, copy.deepcopy(self._random)
        return sampler

    def choose(self, logits: np.ndarray[Any, Any]) -> int:
        """A token by its scores [words]; of equal ones the first."""
        if self._sampling.temperature == 0 or self._sampling.top_k == 1:
            return int(np.argmax(logits))
        tokens, chances = probabilities(logits, self._sampling)
        # The last sum may be a little under 1.
        position = np.searchsorted(np.cumsum(chances), self._random.random(), side="right")
        return int(tokens[min(int(position), len(tokens) - 1)])


def probabilities(
    logits: np.ndarray[Any, Any], sampling: Sampling
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The tokens that may be chosen, the most probable first, and their probabilities; raises
    ExecutionError where no logit is finite.
    """
    logits = logits.astype(np.float64) / max(sampling.temperature, _LEAST_TEMPERATURE)
    count = min(sampling.top_k or len(logits), len(logits))
    tokens = np.argpartition(-logits, count - 1)[:count]
    tokens = tokens[np.isfinite(logits[tokens])]
    if not len(tokens):
        raise ExecutionError("the model's logits are not finite")
    tokens = tokens[np.lexsort((tokens, -logits[tokens]))]
    powers = np.exp(logits[tokens] - logits[tokens[0]])
    chances = powers / powers.sum()
    if sampling.top_p < 1:
        # The token that reaches the sum is in.
        count = int(np.searchsorted(np.cumsum(chances), sampling.top_p)) + 1
        tokens, chances = tokens[:count], chances[:count]
        chances = chances / chances.sum()
    return tokens, chances
