"""The answers under way: sequences that get their tokens side by side, and the prompt that enters
behind them.
"""

from collections.abc import Iterator

from relaxd.errors import RelaxdError
from relaxd.llm.generation import Finish, Generation
from relaxd.llm.prefixes import Prefixes
from relaxd.llm.seats import Logits
from relaxd.llm.speculation import Guessing

_LATELY = 0.1
"""How much of the mean the last answer is."""


class Batch:
    """The answers that have a place; all but `count` for one thread alone.

    piece: tokens of a prompt between two tokens of other answers; guessing: what makes guesses of
    the next tokens, which a step computes too.
    """

    def __init__(self, seats: Prefixes, piece: int, guessing: Guessing | None = None) -> None:
        self._seats = seats
        self._piece = piece
        self._guessing = guessing
        self._running: list[Generation] = []
        self._entering: Generation | None = None
        self._begun = False
        self.seconds = 0.0
        """How long answers took lately, from their first token to their last."""

    @property
    def count(self) -> int:
        """How many answers are under way."""
        return len(self._running) + (self._entering is not None)

    @property
    def free(self) -> bool:
        """True if a prompt may enter."""
        return self._entering is None and len(self._running) < self._seats.count

    def __iter__(self) -> Iterator[Generation]:
        entering = [self._entering] if self._entering is not None else []
        return iter([*self._running, *entering])

    def enter(self, made: Generation) -> None:
        """Lets an answer begin, or go on where it was when its place was taken."""
        self._entering = made
        self._begun = False

    def give_way(self, priority: int) -> Generation | None:
        """Takes the place of the least important answer, if it is less important than `priority`
        and may be interrupted, so that a prompt may enter; returns that answer.
        """
        if self._entering is not None:
            if not _yields(self._entering, priority):
                return None
            made, self._entering = self._entering, None
            self._seats.ended(len(self._running))
            made.preempted += 1
            return made
        others = [made for made in self._running if _yields(made, priority)]
        if not others:
            return None
        made = min(others, key=lambda other: (other.priority, -(other.number or 0)))
        self._leave(self._running.index(made))
        made.preempted += 1
        return made

    def drop(self) -> None:
        """Ends what nobody wants any more, and empties the places of what is over, the last
        first.
        """
        if self._entering is not None and self._entering.cancelled:
            self._entering.end(Finish.CANCELLED)
            self._seats.ended(len(self._running))
            self._entering = None
        for seat in reversed(range(len(self._running))):
            made = self._running[seat]
            if made.cancelled and made.finish is None:
                made.end(Finish.CANCELLED)
            if made.finish is not None:
                self._leave(seat)

    def read(self) -> None:
        """Takes a piece of the prompt that enters; behind its last comes a token."""
        made, seat = self._entering, len(self._running)
        if made is None:
            return
        sequence = made.sequence
        if not self._begun:
            reused = self._seats.begin(seat, sequence)
            made.reused = reused if made.reused is None else made.reused
            self._begun = True
        done = self._seats.length(seat)
        piece = sequence[done : done + self._piece]
        scores = self._seats.extend(seat, piece)
        if done + len(piece) < len(sequence):
            return
        self._take(made, scores, self._room(seat))
        self._running.append(made)
        self._entering = None

    def step(self) -> None:
        """Gives every running sequence its next token, and as many more as were guessed."""
        self.drop()
        if not self._running:
            return
        guesses = self._guesses()
        rows = [
            [made.tokens[-1], *guess] for made, guess in zip(self._running, guesses, strict=True)
        ]
        before = [self._seats.length(seat) for seat in range(len(rows))]
        scores = self._seats.step(rows)
        for seat, made in enumerate(self._running):
            kept = self._keep(
                made, guesses[seat], scores[seat], self._seats.capacity - before[seat]
            )
            self._seats.truncate(seat, before[seat] + 1 + kept)
            if self._guessing is not None:
                self._guessing.judge(made, len(guesses[seat]), kept)
        # What is over has no place that it could give up.
        self.drop()

    def fail(self, error: RelaxdError) -> None:
        """Ends all answers by an error."""
        for made in self:
            if made.finish is None:
                made.fail(error)
        # A call that failed may have left any rows behind.
        self._seats.forget()
        for made in self._running:
            if self._guessing is not None:
                self._guessing.forget(made)
        self._running.clear()
        self._entering = None

    def _guesses(self) -> list[list[int]]:
        """The tokens that are computed behind the last one of each sequence."""
        if self._guessing is None:
            return [[] for _ in self._running]
        longest = max(self._seats.length(seat) for seat in range(len(self._running)))
        room = min(self._seats.capacity - longest, self._piece) - 1
        return self._guessing.guesses(self._running, room)

    def _keep(self, made: Generation, guess: list[int], scores: Logits, room: int) -> int:
        """Gives an answer tokens as long as they are those that were guessed, and one more; returns
        how many were.
        """
        for kept in range(len(guess) + 1):
            token = self._take(made, scores[kept], room - 1 - kept)
            if made.finish is not None or kept == len(guess) or token != guess[kept]:
                break
        return kept

    def _take(self, made: Generation, scores: Logits, room: int) -> int | None:
        """The next token of an answer; None where an error that is its own ended it."""
        try:
            return made.take(scores, room)
        except RelaxdError as error:
            made.fail(error)
            return None

    def _leave(self, seat: int) -> None:
        """Empties a place, and closes the gap by the last sequence, and by the one that enters."""
        last = len(self._running) - 1
        times = self._running[seat].times
        if self._running[seat].finish is not None and times:
            self.seconds += _LATELY * (times[-1] - times[0] - self.seconds)
        if self._guessing is not None:
            self._guessing.forget(self._running[seat])
        self._seats.ended(seat)
        self._seats.swap(last, seat)
        self._running[seat] = self._running[last]
        self._running.pop()
        if self._entering is not None and self._begun:
            self._seats.swap(last + 1, last)

    def _room(self, seat: int) -> int:
        """Tokens that may come behind the next one."""
        return self._seats.capacity - self._seats.length(seat)


def _yields(made: Generation, priority: int) -> bool:
    return made.priority < priority and not made.settled
