"""One answer as it comes into being: its pieces of text, why it ended, and how long it took."""

import logging
import queue
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from relaxd.errors import RelaxdError
from relaxd.llm.adapters import LoadedAdapter
from relaxd.llm.logprobs import TokenLogprob, measure_logprob
from relaxd.llm.matching import Matcher
from relaxd.llm.sampling import Sampler, Sampling
from relaxd.llm.text import Text

logger = logging.getLogger(__name__)


class Finish(StrEnum):
    """Why an answer ended: the model or a stop text ended it, it is as long as it may be, or
    nobody wants it any more.
    """

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Piece:
    """A part of a stream: a text, which may be empty, and its token, None where the answer ends
    without one. finish: set in the last piece. logprob: where the request asks for it, but for the
    token that ends texts.
    """

    text: str = ""
    token: int | None = None
    finish: Finish | None = None
    error: RelaxdError | None = None
    logprob: TokenLogprob | None = None


class Generation:
    """An answer; iterate over its pieces, from any one thread."""

    def __init__(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        text: Text | None,
        ends: frozenset[int],
        on_token: Callable[[Piece], None] | None = None,
        *,
        matcher: Matcher | None = None,
        priority: int = 0,
        shown: frozenset[int] = frozenset(),
    ) -> None:
        self.adapter: LoadedAdapter | None = None
        """Changes the model for this answer alone."""
        self.prompt = tuple(prompt)
        self.sampling = sampling
        self.priority = priority
        self.number: int | None = None
        """The order of arrival."""
        self.preempted = 0
        """How often a more important request took the place."""
        self.settled = False
        """Whether the place is not taken any more, as the request waited long for it."""
        self.drafted = self.accepted = 0
        """Tokens that were guessed ahead, and those of them that the answer has."""
        self.reused: int | None = None
        """Tokens of the prompt whose rows others left; None before the prompt enters."""
        self.prompt_logprobs: list[TokenLogprob] = []
        """Of the prompt's second token and all behind it, where the request asks for them."""
        self.tokens: list[int] = []
        self.finish: Finish | None = None
        self.began = time.perf_counter()
        self.entered: float | None = None
        """When its prompt began to be computed."""
        self.times: list[float] = []
        self._ends = ends.union(sampling.stop_tokens)
        self._sampler = Sampler(sampling, self.prompt)
        self.matcher = matcher
        self._stream = text.stream(shown) if text else None
        self._pieces: queue.SimpleQueue[Piece] = queue.SimpleQueue()
        self._on_token = on_token or self._pieces.put
        self._held = ""
        self._cancelled = False

    def __iter__(self) -> Iterator[Piece]:
        """The pieces, the last one with `finish`; raises the error that ended the answer."""
        while True:
            piece = self._pieces.get()
            if piece.error is not None:
                raise piece.error
            yield piece
            if piece.finish is not None:
                return

    def text(self) -> str:
        """The whole answer, once it is there."""
        return "".join(piece.text for piece in self)

    def cancel(self) -> None:
        """Ends the answer before its next token; from any thread."""
        self._cancelled = True

    @property
    def cancelled(self) -> bool:
        """True if nobody wants the rest."""
        return self._cancelled

    @property
    def sequence(self) -> list[int]:
        """The tokens of the prompt and of the answer."""
        return [*self.prompt, *self.tokens]

    def take(self, logits: "np.ndarray[Any, Any]", room: int) -> int:
        """Choose the next token by its logits [vocabulary], hand it to who listens, and return it.

        room: how many more tokens the caches take after it. Raises GrammarError where the answer's
        grammar grew too complex.
        """
        masked = logits if self.matcher is None else self.matcher.mask(logits)
        token = self._sampler.choose(masked)
        logprob = self._measure(logits, token)
        self.tokens.append(token)
        self.times.append(time.perf_counter())
        if token in self._ends:
            self._end(Finish.STOP, token, self._held)
            return token
        complete = self.matcher is not None and self.matcher.take(token)
        self._held += self._stream.step(token) if self._stream else ""
        stop_at = first_of(self._held, self.sampling.stop)
        if stop_at is not None:
            self._end(Finish.STOP, token, self._held[:stop_at], logprob)
        elif complete:
            self._end(Finish.STOP, token, self._held, logprob)
        elif room <= 0 or len(self.tokens) == self.sampling.max_tokens:
            self._end(Finish.LENGTH, token, self._held, logprob)
        else:
            sure = len(self._held) - pending(self._held, self.sampling.stop)
            self._send(Piece(self._held[:sure], token, logprob=logprob))
            self._held = self._held[sure:]
        return token

    def score_prompt(self, start: int, logits: "np.ndarray[Any, Any]") -> None:
        """Measure the prompt's tokens behind those from `start` on, of which logits
        [tokens, vocabulary] are; those that were measured before a preemption stay.
        """
        for position, row in enumerate(logits, start + 1):
            if len(self.prompt_logprobs) + 1 == position < len(self.prompt):
                count = self.sampling.logprobs or 0
                self.prompt_logprobs.append(measure_logprob(row, self.prompt[position], count))

    def _measure(self, logits: "np.ndarray[Any, Any]", token: int) -> TokenLogprob | None:
        count = self.sampling.logprobs
        return None if count is None else measure_logprob(logits, token, count)

    def ahead(self) -> "Ahead":
        """Chooses tokens as the answer would, which stays as it is."""
        matcher = None if self.matcher is None else self.matcher.copy()
        return Ahead(self._sampler.copy(), matcher, self._ends)

    def end(self, finish: Finish) -> None:
        """Ends the answer without another token."""
        self._end(finish, None, self._held)

    def fail(self, error: RelaxdError) -> None:
        """Ends the answer by an error, which the listener raises."""
        self.finish = Finish.CANCELLED
        self._send(Piece(finish=self.finish, error=error))

    def _end(
        self, finish: Finish, token: int | None, text: str, logprob: TokenLogprob | None = None
    ) -> None:
        self.finish = finish
        self._send(Piece(text, token, finish, logprob=logprob))

    def _send(self, piece: Piece) -> None:
        try:
            self._on_token(piece)
        except Exception:
            # In the engine's thread: it must not end the completions of others.
            logger.exception("the listener of a completion failed, the completion is cancelled")
            self._cancelled = True


class Ahead:
    """Chooses the next tokens of an answer by other scores than the model's, with the draws that
    the answer will take.
    """

    def __init__(self, sampler: Sampler, matcher: Matcher | None, ends: frozenset[int]) -> None:
        self._sampler = sampler
        self._matcher = matcher
        self._ends = ends
        self._over = False

    def choose(self, logits: "np.ndarray[Any, Any]") -> int | None:
        """The next token; None behind the end of the answer."""
        if self._over:
            return None
        if self._matcher is not None:
            logits = self._matcher.mask(logits)
        token = self._sampler.choose(logits)
        self._over = token in self._ends or (
            self._matcher is not None and self._matcher.take(token)
        )
        return token


def first_of(text: str, stops: Sequence[str]) -> int | None:
    """Where the first of the stops begins in a text."""
    starts = [start for stop in stops if (start := text.find(stop)) >= 0]
    return min(starts) if starts else None


def pending(text: str, stops: Sequence[str]) -> int:
    """How many characters at a text's end may be the beginning of a stop."""
    for count in range(min(len(text), max(map(len, stops), default=0)), 0, -1):
        if any(stop.startswith(text[-count:]) for stop in stops):
            return count
    return 0
