"""Changes the logits of one completion by its request: a bias of single tokens, and penalties of
those that were there before.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from relaxd.llm.sampling import Sampling

Array = np.ndarray[Any, Any]


@dataclass
class Penalties:
    """The tokens that one completion is penalized for; seen: those of the prompt too, in order;
    counts: how often each token is in the completion.
    """

    sampling: "Sampling"
    seen: dict[int, None] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)

    def copy(self) -> "Penalties":
        """Make one that goes on from here by itself."""
        return Penalties(self.sampling, dict(self.seen), dict(self.counts))

    def apply(self, logits: Array) -> Array:
        """Change logits [vocabulary] in vLLM's order: the bias is added, then positive logits of
        seen tokens are divided by the repetition penalty and negative ones multiplied, then the
        frequency penalty for each time and the presence penalty are subtracted; returns float64.
        """
        logits = logits.astype(np.float64)
        sampling = self.sampling
        biased = _select(sampling.logit_bias, logits)
        logits[biased] += [sampling.logit_bias[token] for token in biased.tolist()]
        if sampling.repetition_penalty != 1:
            seen = _select(self.seen, logits)
            values, factor = logits[seen], sampling.repetition_penalty
            logits[seen] = np.where(values > 0, values / factor, values * factor)
        counted = _select(self.counts, logits)
        counts = np.array([self.counts[token] for token in counted.tolist()])
        logits[counted] -= sampling.frequency_penalty * counts + sampling.presence_penalty
        return logits

    def count(self, token: int) -> None:
        """Count a token that was chosen."""
        self.seen[token] = None
        self.counts[token] = self.counts.get(token, 0) + 1


def make_penalties(sampling: "Sampling", prompt: Sequence[int]) -> Penalties | None:
    """Make the penalties of a completion; None where the request changes no logits."""
    neutral = (sampling.repetition_penalty, sampling.frequency_penalty, sampling.presence_penalty)
    if neutral == (1, 0, 0) and not sampling.logit_bias:
        return None
    return Penalties(sampling, dict.fromkeys(prompt))


def _select(tokens: Iterable[int], logits: Array) -> Array:
    """The tokens that have logits."""
    selected = np.fromiter(tokens, np.int64)
    return selected[selected < len(logits)]
