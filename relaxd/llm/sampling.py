"""Chooses a token by the scores that a model gives to all of them."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from relaxd.errors import ExecutionError, InputError
from relaxd.llm.grammar import Grammar
from relaxd.llm.penalties import make_penalties

MOST_LOGPROBS = 20
_MOST_BIASED = 1024
_MOST_STOPS = 16
_LONGEST_STOP = 1000
_LEAST_TEMPERATURE = 1e-100
"""Below it, logits that are divided by it may overflow."""


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen, and where a text ends.

    temperature: 0 takes the most probable token; top_k: of how many tokens, 0 for all; top_p: of
    the most probable ones that together reach this probability; min_p: of those that have at least
    this share of the most probable one's probability.
    seed: of the draws, None for another one each time.
    max_tokens: None for as many as the caches hold; stop: texts that end the answer, without them;
    stop_tokens: tokens that do, beside those that end the model's texts.
    grammar: what the answer's text has to match; other tokens are left out before one is chosen.
    logit_bias: added to the logits of single tokens.
    repetition_penalty: divides positive logits of tokens that the prompt or the answer has, and
    multiplies negative ones; frequency_penalty: subtracted for each time that the answer has a
    token; presence_penalty: subtracted once.
    logprobs: how many of the most probable tokens are reported with each token and its log
    probability, None to report nothing; prompt_logprobs: whether the prompt's tokens get them too.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    grammar: Grammar | None = None
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    stop_tokens: tuple[int, ...] = ()
    logprobs: int | None = None
    prompt_logprobs: bool = False

    def __post_init__(self) -> None:
        penalties = (self.presence_penalty, self.frequency_penalty)
        for holds, name, what in (
            (0 <= self.temperature <= 100, "temperature", "must be 0 to 100"),
            (self.top_k >= 0, "top_k", "must be at least 0"),
            (0 < self.top_p <= 1, "top_p", "must be above 0 and at most 1"),
            (0 <= self.min_p <= 1, "min_p", "must be 0 to 1"),
            (-2 <= penalties[0] <= 2, "presence_penalty", "must be -2 to 2"),
            (-2 <= penalties[1] <= 2, "frequency_penalty", "must be -2 to 2"),
            (0.01 <= self.repetition_penalty <= 100, "repetition_penalty", "must be 0.01 to 100"),
            (self.seed is None or 0 <= self.seed < 1 << 64, "seed", "must have 64 bits"),
            (self.max_tokens is None or self.max_tokens > 0, "max_tokens", "must be at least 1"),
            (len(self.stop) <= _MOST_STOPS, "stop", f"has more than {_MOST_STOPS} texts"),
            (all(self.stop), "stop", "has an empty text"),
            (
                all(len(stop) <= _LONGEST_STOP for stop in self.stop),
                "stop",
                f"has a text of more than {_LONGEST_STOP} characters",
            ),
            (
                len(self.stop_tokens) <= _MOST_BIASED,
                "stop_token_ids",
                f"has more than {_MOST_BIASED} tokens",
            ),
            (
                len(self.logit_bias) <= _MOST_BIASED,
                "logit_bias",
                f"has more than {_MOST_BIASED} tokens",
            ),
            (
                all(-100 <= bias <= 100 for bias in self.logit_bias.values()),
                "logit_bias",
                "must be -100 to 100 for each token",
            ),
            (
                self.logprobs is None or 0 <= self.logprobs <= MOST_LOGPROBS,
                "logprobs",
                f"must be 0 to {MOST_LOGPROBS}",
            ),
        ):
            if not holds:
                raise InputError(f"{name} {what}", field=name)


class Sampler:
    """Draws the tokens of one answer to a prompt."""

    def __init__(self, sampling: Sampling, prompt: Sequence[int] = ()) -> None:
        self._sampling = sampling
        self._penalties = make_penalties(sampling, prompt)
        self._random = np.random.default_rng(sampling.seed)

    def copy(self) -> "Sampler":
        """Another one that makes the same draws from here on."""
        sampler = Sampler.__new__(Sampler)
        sampler._sampling, sampler._random = self._sampling, copy.deepcopy(self._random)
        sampler._penalties = self._penalties and self._penalties.copy()
        return sampler

    def choose(self, logits: np.ndarray[Any, Any]) -> int:
        """A token by its logits [vocabulary]; of equal ones the first."""
        if self._penalties is None:
            return self._draw(logits)
        token = self._draw(self._penalties.apply(logits))
        self._penalties.count(token)
        return token

    def _draw(self, logits: np.ndarray[Any, Any]) -> int:
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
    if sampling.min_p > 0:
        # They are sorted, and the first is 1.
        count = int(np.count_nonzero(powers >= sampling.min_p))
        tokens, powers = tokens[:count], powers[:count]
    chances = powers / powers.sum()
    if sampling.top_p < 1:
        # The token that reaches the sum is in.
        count = int(np.searchsorted(np.cumsum(chances), sampling.top_p)) + 1
        tokens, chances = tokens[:count], chances[:count]
        chances = chances / chances.sum()
    return tokens, chances
