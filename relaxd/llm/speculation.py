"""Speculative decoding: one call verifies several draft tokens of each completion.

Draft tokens do not change the completion: the sampler chooses each token by the logits after the
previous one, with the random number that it would use anyway, and a draft token is accepted if it
is the token that was chosen. For a single draft token that is rejection sampling: it is accepted
with the probability that the model gives it, and the token that replaces it follows the model's
probabilities of all other tokens.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from relaxd.errors import InputError
from relaxd.llm.costs import Costs, best_count, measure_costs
from relaxd.llm.drafts import Drafter, Lookup, SmallModel
from relaxd.llm.generation import Generation
from relaxd.llm.prefixes import Prefixes
from relaxd.llm.slots import logits_of, most_rows, slots_of
from relaxd.loader.model import Model

logger = logging.getLogger(__name__)

_MOST = 16
_PIECE = 128
_START = 0.5
"""The assumed probability of acceptance before any draft token was verified."""
_LATELY = 0.2
_FORGETTING = 0.005
_FORCED = 0.95
"""The probability of acceptance of a token that the grammar forces: a model may split the same text
into other tokens."""


class Source(StrEnum):
    """The source of draft tokens: an earlier occurrence of the same tokens, or a smaller model."""

    NGRAM = "ngram"
    DRAFT = "draft"


@dataclass(frozen=True)
class Speculation:
    """The source of draft tokens, and the most of them for a completion in one call."""

    source: Source = Source.NGRAM
    tokens: int = 4

    def __post_init__(self) -> None:
        if not 1 <= self.tokens <= _MOST:
            raise InputError(f"{self.tokens} draft tokens: there must be 1 to {_MOST}")

    @classmethod
    def parse(cls, text: str) -> "Speculation":
        """Reads `ngram`, `ngram:4` or `draft:4`; raises InputError for anything else."""
        source, _, tokens = text.partition(":")
        if source not in set(Source) or not (tokens or str(cls.tokens)).isdecimal():
            raise InputError(
                f"{text!r} is not a valid source of draft tokens",
                hint="ngram:N or draft:N, as in ngram:4",
            )
        return cls(Source(source), int(tokens) if tokens else cls.tokens)


class Speculator:
    """Draft tokens for the completions of a batch, as many as are profitable.

    batched: one call computes the tokens of all completions, each as many as the longest.
    """

    def __init__(self, most: int, drafter: Drafter, costs: Costs, *, batched: bool) -> None:
        self._most = most
        self._drafter = drafter
        self._batched = batched
        self._costs = costs
        self._rates: dict[Generation, float] = {}

    def draft_tokens(self, answers: Sequence[Generation], room: int) -> list[list[int]]:
        """Draft at most `room` tokens for each completion."""
        drafts, rates = [], []
        for generation in answers:
            longest = generation.sampling.max_tokens
            left = room if longest is None else longest - len(generation.tokens) - 1
            most = max(min(self._most, room, left), 0)
            forced = (
                generation.matcher.forced_tokens()[:most] if generation.matcher is not None else []
            )
            rate = _FORCED if forced else self._rates.get(generation, _START)
            drafts.append(
                forced or self._draft(generation, best_count([most], [rate], self._costs))
            )
            rates.append(rate)
        # The draft tokens are computed: their cost is spent.
        spent = replace(self._costs, draft=0.0)
        if self._batched:
            count = best_count([len(draft) for draft in drafts], rates, spent)
            return [draft[:count] for draft in drafts]
        return [
            draft[: best_count([len(draft)], [rate], spent)]
            for draft, rate in zip(drafts, rates, strict=True)
        ]

    def judge(self, generation: Generation, drafted: int, accepted: int) -> None:
        """Record how many draft tokens of a completion were accepted."""
        generation.drafted += drafted
        generation.accepted += accepted
        rate = self._rates.get(generation, _START)
        if not drafted:
            # The text may have changed its character since.
            self._rates[generation] = rate + _FORGETTING * (_START - rate)
            return
        # Draft tokens after the first rejected one were not verified.
        for right in [1.0] * accepted + [0.0] * (accepted < drafted):
            rate += _LATELY * (right - rate)
        self._rates[generation] = rate

    def forget(self, generation: Generation) -> None:
        """Forget a completion that was preempted or has ended."""
        self._rates.pop(generation, None)
        self._drafter.forget(generation)

    def _draft(self, generation: Generation, most: int) -> list[int]:
        try:
            draft = self._drafter.draft(generation, most) if most else []
        except Exception:
            # What is wrong with the completion itself, as with its grammar, ends it at its token.
            logger.warning("a completion has no draft tokens", exc_info=True)
            self._drafter.forget(generation)
            return []
        return (
            draft
            if generation.matcher is None
            else draft[: generation.matcher.count_admitted(draft)]
        )


def make_speculator(
    model: Model, slots: Prefixes, speculation: Speculation, draft: Model | None
) -> Speculator:
    """Make the speculator of a model; raises InputError where the model admits none."""
    logits = logits_of(model)
    if str(logits.shape[1]) == "1":
        raise InputError(
            "the library computes only the last token's logits: draft tokens cannot be verified",
            hint="compile it with logits=all, or do not speculate",
        )
    if (speculation.source is Source.DRAFT) != (draft is not None):
        raise InputError(
            "the source draft needs a draft model, and only that source",
            hint="give both, as --speculate draft:4 --draft BUNDLE",
        )
    if draft is None:
        costs = measure_costs(slots, _rows(model, speculation))
        return Speculator(speculation.tokens, Lookup(), costs, batched=slots.batched)
    theirs = logits_of(draft).shape[2]
    if theirs != logits.shape[2]:
        raise InputError(
            f"the draft model has {theirs} tokens, the model {logits.shape[2]}",
            hint="a draft model must have the tokenizer of the model",
        )
    smaller = slots_of(draft, slots.count, None)
    costs = measure_costs(slots, _rows(model, speculation), smaller)
    drafter = SmallModel(smaller, most_rows(draft) or _PIECE)
    return Speculator(speculation.tokens, drafter, costs, batched=slots.batched)


def _rows(model: Model, speculation: Speculation) -> int:
    """The most rows that an answer has in a call."""
    return min(speculation.tokens + 1, most_rows(model) or speculation.tokens + 1)
