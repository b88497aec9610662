"""The log probabilities that a model gives to tokens, by its own logits: before a grammar, a bias,
penalties or the temperature change them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from relaxd.errors import ExecutionError

LEAST_LOGPROB = -9999.0
"""In place of minus infinity, which JSON has no number for; OpenAI's value."""


@dataclass(frozen=True)
class TokenLogprob:
    """A token, its log probability, and the most probable tokens at its position with theirs."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


def measure_logprob(logits: "np.ndarray[Any, Any]", token: int, count: int) -> TokenLogprob:
    """The log probability of a token by logits [vocabulary], and `count` of the most probable
    tokens, of equal ones the first; raises ExecutionError where the logits are not finite.
    """
    values = logits.astype(np.float64)
    most = values.max()
    if not np.isfinite(most):
        raise ExecutionError("the model's logits are not finite")
    values -= most + np.log(np.exp(values - most).sum())
    count = min(count, len(values))
    top = np.argpartition(-values, count - 1)[:count] if count else np.arange(0)
    top = top[np.lexsort((top, -values[top]))]
    return TokenLogprob(
        token, _limit(values[token]), tuple((int(each), _limit(values[each])) for each in top)
    )


def _limit(logprob: float) -> float:
    return max(float(logprob), LEAST_LOGPROB)
