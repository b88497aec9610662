"""Answers several requests at once: a thread gives each running sequence a token in turn, and takes
new prompts in pieces between.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path

from relaxd.errors import CapacityError, InputError, OverloadError, RelaxdError
from relaxd.llm.generation import Finish, Generation, Piece
from relaxd.llm.prefixes import Prefixes
from relaxd.llm.sampling import Sampling
from relaxd.llm.seats import seats_of
from relaxd.llm.text import TOKENIZER, Text
from relaxd.loader.model import Model
from relaxd.loading import load

_PROMPT_PIECE = 128
_GREEDY = Sampling()


class Engine:
    """A language model that answers; `generate` may be called from any thread, `close` ends all.

    sequences: how many are answered at once; waiting: how many more may wait for a place;
    piece: tokens of a prompt between two tokens of other answers; sharing: whether a prompt takes
    the rows that another one with the same beginning left.
    """

    def __init__(
        self,
        model: Model,
        text: Text | None = None,
        *,
        sequences: int | None = None,
        capacity: int | None = None,
        waiting: int = 64,
        piece: int = _PROMPT_PIECE,
        sharing: bool = True,
    ) -> None:
        self.model = model
        self.text = text
        self._seats = Prefixes(seats_of(model, sequences, capacity), share=sharing)
        self._piece = min(piece, _most_rows(model) or piece)
        self._running: list[Generation] = []
        self._entering: Generation | None = None
        self._waiting: deque[Generation] = deque()
        self._most_waiting = waiting
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="relaxd-llm", daemon=True)
        self._thread.start()

    @classmethod
    def open(
        cls,
        bundle: str | PathLike[str],
        tokenizer: str | PathLike[str] | None = None,
        *,
        threads: int | None = None,
        sequences: int | None = None,
        capacity: int | None = None,
        waiting: int = 64,
        sharing: bool = True,
    ) -> "Engine":
        """An engine of a bundle and the folder of its tokenizer, by default the bundle's own."""
        folder = Path(bundle if tokenizer is None else tokenizer)
        text = Text(folder) if tokenizer is not None or (folder / TOKENIZER).is_file() else None
        model = load(bundle, threads=threads)
        return cls(
            model, text, sequences=sequences, capacity=capacity, waiting=waiting, sharing=sharing
        )

    @property
    def capacity(self) -> int:
        """Tokens of a prompt and its answer together."""
        return self._seats.capacity

    @property
    def load(self) -> tuple[int, int]:
        """How many requests are answered, and how many wait."""
        with self._changed:
            return len(self._running) + (self._entering is not None), len(self._waiting)

    def generate(
        self,
        prompt: str | Sequence[int],
        sampling: Sampling = _GREEDY,
        heard: Callable[[Piece], None] | None = None,
    ) -> Generation:
        """Begins an answer to a text or to tokens. heard: takes the pieces in place of the
        iterator, in the engine's thread.

        Raises CapacityError for a prompt that the caches do not hold, OverloadError where too many
        wait, InputError for an empty prompt.
        """
        tokens = self._text().encode(prompt) if isinstance(prompt, str) else list(prompt)
        if not tokens:
            raise InputError("the prompt is empty")
        if len(tokens) >= self.capacity:
            # There has to be a place for the answer's first token.
            raise CapacityError(len(tokens) + 1, self.capacity)
        if sampling.stop:
            self._text()
        ends = self.text.ends if self.text else frozenset()
        made = Generation(tokens, sampling, self.text, ends, heard)
        with self._changed:
            if self._closed:
                raise OverloadError("the engine is closed")
            if len(self._waiting) >= self._most_waiting:
                raise OverloadError(
                    f"{len(self._waiting)} requests wait already", hint="try again later"
                )
            self._waiting.append(made)
            self._changed.notify_all()
        return made

    def chat(
        self,
        messages: Sequence[dict[str, object]],
        sampling: Sampling = _GREEDY,
        heard: Callable[[Piece], None] | None = None,
    ) -> Generation:
        """Begins the assistant's answer to a conversation; raises as `generate` does."""
        return self.generate(self._text().chat(messages), sampling, heard)

    def close(self) -> None:
        """Cancels every answer and ends the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _text(self) -> Text:
        if self.text is None:
            reason = self.model.manifest.left_out.get(TOKENIZER)
            raise InputError(
                f"the engine has no tokenizer{f': {reason}' if reason else ''}",
                hint="name the folder that holds it",
            )
        return self.text

    def _serve(self) -> None:
        while self._admit():
            try:
                self._drop()
                self._enter()
                self._step()
            except RelaxdError as error:
                self._fail(error)
            except Exception as error:
                self._fail(RelaxdError(f"the engine failed: {type(error).__name__}: {error}"))
        for made in (*self._all(), *self._waiting):
            made.end(Finish.CANCELLED)

    def _all(self) -> list[Generation]:
        return [*self._running, *([self._entering] if self._entering else [])]

    def _admit(self) -> bool:
        """Waits for work and lets a request in where there is a place; False at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._waiting or self._all())
            if self._waiting and self._entering is None and len(self._running) < self._seats.count:
                self._entering = self._waiting.popleft()
            return not self._closed

    def _drop(self) -> None:
        """Ends what nobody wants any more, the last place first."""
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

    def _leave(self, seat: int) -> None:
        """Empties a place, and closes the gap by the last sequence, and by the one that enters."""
        last = len(self._running) - 1
        self._seats.ended(seat)
        self._seats.swap(last, seat)
        self._running[seat] = self._running[last]
        with self._changed:
            self._running.pop()
        if self._entering is not None and self._entering.reused is not None:
            self._seats.swap(last + 1, last)

    def _enter(self) -> None:
        """Takes a piece of the prompt that enters; behind its last comes the first token."""
        made, seat = self._entering, len(self._running)
        if made is None:
            return
        if made.reused is None:
            made.reused = self._seats.begin(seat, made.prompt)
        done = self._seats.length(seat)
        piece = list(made.prompt[done : done + self._piece])
        logits = self._seats.extend(seat, piece)
        if done + len(piece) < len(made.prompt):
            return
        made.take(logits, self._room(seat))
        with self._changed:
            self._running.append(made)
            self._entering = None

    def _step(self) -> None:
        """Gives every running sequence its next token."""
        self._drop()
        if not self._running:
            return
        logits = self._seats.step([made.tokens[-1] for made in self._running])
        for seat, made in enumerate(self._running):
            made.take(logits[seat], self._room(seat))

    def _room(self, seat: int) -> int:
        """Tokens that may come behind the next one."""
        return self.capacity - self._seats.length(seat)

    def _fail(self, error: RelaxdError) -> None:
        """Ends all answers under way by an error; those that wait get their turn."""
        for made in self._all():
            if made.finish is None:
                made.fail(error)
        # A call that failed may have left any rows behind.
        self._seats.forget()
        with self._changed:
            self._running.clear()
            self._entering = None


def _most_rows(model: Model) -> int | None:
    """New tokens that a call may have."""
    state = model.manifest.state
    rows = [dim.highest for dim in model.dims if state is not None and dim.name == state.rows]
    return rows[0] if rows else None
