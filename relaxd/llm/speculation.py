"""How many tokens are guessed ahead of answers, so that one call computes several tokens.

A guess changes no answer: the sampler chooses each token by the scores of the rows before it, with
the draw that it would take anyway, and a guess is kept where it is the token that was chosen. Of a
single guess, that is rejection sampling: it is kept with the probability that the model gives it,
and what is chosen in its place follows the model's probabilities of all other tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from relaxd.errors import InputError
from relaxd.llm.costs import Costs, best_count, measured
from relaxd.llm.drafts import Drafter, Lookup, SmallModel
from relaxd.llm.generation import Generation
from relaxd.llm.prefixes import Prefixes
from relaxd.llm.seats import most_rows, scores_of, seats_of
from relaxd.loader.model import Model

_MOST = 16
_PIECE = 128
_START = 0.5
"""How probable a guess is held to be before any was judged."""
_LATELY = 0.2
_FORGETTING = 0.005
_FORCED = 0.95
"""How probable the text is, token by token, that a grammar leaves no choice of: a model may cut it
into other tokens."""


class Source(StrEnum):
    """Where guesses come from: what stood behind the same words, or a smaller model."""

    NGRAM = "ngram"
    DRAFT = "draft"


@dataclass(frozen=True)
class Speculation:
    """Where guesses come from, and the most at once for an answer."""

    source: Source = Source.NGRAM
    tokens: int = 4

    def __post_init__(self) -> None:
        if not 1 <= self.tokens <= _MOST:
            raise InputError(f"{self.tokens} tokens are guessed at once, it must be 1 to {_MOST}")

    @classmethod
    def parse(cls, text: str) -> "Speculation":
        """Reads `ngram`, `ngram:4` or `draft:4`; raises InputError for anything else."""
        source, _, tokens = text.partition(":")
        if source not in set(Source) or not (tokens or str(cls.tokens)).isdecimal():
            raise InputError(
                f"{text!r} is no way to guess tokens", hint="ngram:N or draft:N, as in ngram:4"
            )
        return cls(Source(source), int(tokens) if tokens else cls.tokens)


class Guessing:
    """Guesses for the answers of a batch, as many as pay.

    together: whether one call computes the rows of all answers, each as many as the longest.
    """

    def __init__(self, most: int, drafter: Drafter, costs: Costs, *, together: bool) -> None:
        self._most = most
        self._drafter = drafter
        self._together = together
        self._costs = costs
        self._rates: dict[Generation, float] = {}

    def guesses(self, answers: Sequence[Generation], room: int) -> list[list[int]]:
        """The tokens that are computed behind the last one of each answer, at most `room`."""
        found, rates = [], []
        for made in answers:
            longest = made.sampling.max_tokens
            left = room if longest is None else longest - len(made.tokens) - 1
            most = max(min(self._most, room, left), 0)
            forced = made.matcher.forced()[:most] if made.matcher is not None else []
            rate = _FORCED if forced else self._rates.get(made, _START)
            found.append(forced or self._guess(made, best_count([most], [rate], self._costs)))
            rates.append(rate)
        # The guesses are there: what they took is spent.
        spent = replace(self._costs, guess=0.0)
        if self._together:
            count = best_count([len(guess) for guess in found], rates, spent)
            return [guess[:count] for guess in found]
        return [
            guess[: best_count([len(guess)], [rate], spent)]
            for guess, rate in zip(found, rates, strict=True)
        ]

    def judge(self, made: Generation, guessed: int, kept: int) -> None:
        """Takes note of how many guesses an answer kept."""
        made.guessed += guessed
        made.kept += kept
        rate = self._rates.get(made, _START)
        if not guessed:
            # The text may have changed its character since.
            self._rates[made] = rate + _FORGETTING * (_START - rate)
            return
        # Guesses behind the first wrong one were not put to the test.
        for right in [1.0] * kept + [0.0] * (kept < guessed):
            rate += _LATELY * (right - rate)
        self._rates[made] = rate

    def forget(self, made: Generation) -> None:
        """An answer has lost its place, or is over."""
        self._rates.pop(made, None)
        self._drafter.forget(made)

    def _guess(self, made: Generation, most: int) -> list[int]:
        guess = self._drafter.draft(made, most) if most else []
        return guess if made.matcher is None else guess[: made.matcher.admitted(guess)]


def guessing_of(
    model: Model, seats: Prefixes, speculation: Speculation, draft: Model | None
) -> Guessing:
    """What makes guesses for a model's answers; raises InputError where it cannot."""
    words = scores_of(model)
    if str(words.shape[1]) == "1":
        raise InputError(
            "the library gives the scores of the last token alone, so that no guess can be judged",
            hint="compile it with logits=all, or do not speculate",
        )
    if (speculation.source is Source.DRAFT) != (draft is not None):
        raise InputError(
            "a smaller model and the source draft belong together",
            hint="give both, as --speculate draft:4 --draft BUNDLE",
        )
    if draft is None:
        costs = measured(seats, _rows(model, speculation))
        return Guessing(speculation.tokens, Lookup(), costs, together=seats.together)
    theirs = scores_of(draft).shape[2]
    if theirs != words.shape[2]:
        raise InputError(
            f"the smaller model has {theirs} tokens, the model {words.shape[2]}",
            hint="a smaller model must share the tokenizer of the model that it guesses for",
        )
    places = seats_of(draft, seats.count, None)
    costs = measured(seats, _rows(model, speculation), places)
    drafter = SmallModel(places, most_rows(draft) or _PIECE)
    return Guessing(speculation.tokens, drafter, costs, together=seats.together)


def _rows(model: Model, speculation: Speculation) -> int:
    """The most rows that an answer has in a call."""
    return min(speculation.tokens + 1, most_rows(model) or speculation.tokens + 1)
