"""Continuous batching: running sequences that get their tokens together, and one prompt that is
prefilled between their steps.
"""

import time
from collections.abc import Iterator

from relaxd.errors import CacheFullError, RelaxdError
from relaxd.llm.generation import Finish, Generation
from relaxd.llm.prefixes import Prefixes
from relaxd.llm.slots import Logits
from relaxd.llm.speculation import Speculator

_LATELY = 0.1
"""The weight of the latest completion in the moving average."""


class Batch:
    """The sequences that have a slot; all but `count` is for one thread alone.

    piece: the size of a prefill chunk; one is computed between two decoding steps. speculator: the
    source of draft tokens, which a step verifies.
    """

    def __init__(self, slots: Prefixes, piece: int, speculator: Speculator | None = None) -> None:
        self._slots = slots
        self._piece = piece
        self._speculator = speculator
        self._running: list[Generation] = []
        self._entering: Generation | None = None
        self._begun = False
        self._is_full = False
        """Whether a sequence was preempted for lack of memory since the last one left."""
        self.displaced: list[Generation] = []
        """Sequences that were preempted for lack of memory, and wait again."""
        self.seconds = 0.0
        """The moving average of the time from a completion's first token to its last."""

    @property
    def count(self) -> int:
        """The number of sequences that run or enter."""
        return len(self._running) + (self._entering is not None)

    @property
    def cache_usage(self) -> float:
        """The share of the KV cache that running sequences fill; may be read from any thread."""
        return self._slots.cache_usage(self.count)

    @property
    def free(self) -> bool:
        """True if a prompt may enter."""
        is_full = self._is_full and bool(self._running)
        return self._entering is None and len(self._running) < self._slots.count and not is_full

    def __iter__(self) -> Iterator[Generation]:
        entering = [self._entering] if self._entering is not None else []
        return iter([*self._running, *entering])

    def enter(self, generation: Generation) -> None:
        """Begin a sequence, or resume a preempted one."""
        if generation.entered is None:
            generation.entered = time.perf_counter()
        self._entering = generation
        self._begun = False

    def preempt(self, priority: int) -> Generation | None:
        """Preempt the sequence of lowest priority, if it is below `priority` and may be preempted,
        so that a prompt may enter; returns that sequence.
        """
        generation = self._entering or min(
            (each for each in self._running if _yields(each, priority)), key=_rank, default=None
        )
        if generation is None or not _yields(generation, priority):
            return None
        self._stop(generation)
        return generation

    def _stop(self, generation: Generation) -> None:
        """Take a sequence out of the batch; its tokens stay cached if nobody needs the memory."""
        if generation is self._entering:
            self._entering = None
            self._slots.end(len(self._running))
        else:
            self._leave(self._running.index(generation))
        generation.preempted += 1

    def _displace(self, error: CacheFullError) -> None:
        """Stop the least important sequence, for lack of memory; the only one ends by the error."""
        generation = min(self, key=_rank)
        if self.count == 1:
            generation.fail(error)
        self._stop(generation)
        if generation.finish is None:
            self._is_full = True
            self.displaced.append(generation)

    def drop(self) -> None:
        """End cancelled sequences, and free the slots of all that have ended, the last first."""
        if self._entering is not None and self._entering.cancelled:
            self._entering.end(Finish.CANCELLED)
            self._slots.end(len(self._running))
            self._entering = None
        for slot in reversed(range(len(self._running))):
            generation = self._running[slot]
            if generation.cancelled and generation.finish is None:
                generation.end(Finish.CANCELLED)
            if generation.finish is not None:
                self._leave(slot)

    def read(self) -> None:
        """Compute one prefill chunk; the last chunk of a prompt gives its first token."""
        generation, slot = self._entering, len(self._running)
        if generation is None or not (self._begun or self._begin(generation)):
            return
        sequence, done = generation.sequence, self._slots.length(slot)
        piece = sequence[done : done + self._piece]
        try:
            logits = self._slots.extend(slot, piece)
            if generation.sampling.prompt_logprobs:
                generation.score_prompt(done, logits)
        except CacheFullError as error:
            self._displace(error)
            return
        except BaseException as error:
            generation.fail(failure_of(error))
            self._slots.end(slot)
            self._entering = None
            return
        if done + len(piece) < len(sequence):
            return
        self._take(generation, logits[-1], self._room(slot))
        self._running.append(generation)
        self._entering = None

    def _begin(self, generation: Generation) -> bool:
        """Fill a slot with what is cached of a sequence; False where there is no memory."""
        # Cached tokens have no logits any more.
        share = not generation.sampling.prompt_logprobs
        slot, adapter = len(self._running), generation.adapter
        try:
            reused = self._slots.begin(slot, generation.sequence, share=share, adapter=adapter)
        except CacheFullError as error:
            self._displace(error)
            return False
        generation.reused = reused if generation.reused is None else generation.reused
        self._begun = True
        return True

    def step(self) -> None:
        """Give every running sequence its next token, and the draft tokens that are accepted."""
        self.drop()
        if not self._running:
            return
        draft_tokens = self._drafts()
        rows = [
            [generation.tokens[-1], *draft]
            for generation, draft in zip(self._running, draft_tokens, strict=True)
        ]
        before = [self._slots.length(slot) for slot in range(len(rows))]
        try:
            logits = self._slots.step(rows)
        except CacheFullError as error:
            self._displace(error)
            return
        except BaseException:
            self._step_each()
            return
        for slot, draft in enumerate(draft_tokens):
            self._accept(slot, before[slot], draft, logits[slot])
        # A sequence that has ended must not be preempted.
        self.drop()

    def _accept(self, slot: int, before: int, draft: list[int], logits: Logits) -> None:
        """Choose a sequence's tokens behind the first `before`, and drop rejected drafts."""
        generation = self._running[slot]
        accepted = self._keep(generation, draft, logits, self._slots.capacity - before)
        self._slots.truncate(slot, before + 1 + accepted)
        if self._speculator is not None:
            self._speculator.judge(generation, len(draft), accepted)

    def _step_each(self) -> None:
        """Give every running sequence its next token by a call of its own, behind a call for all
        that failed: the sequences at fault end by their errors, the others go on.
        """
        for slot, generation in enumerate(self._running):
            try:
                logits = self._slots.extend(slot, generation.tokens[-1:])
            except BaseException as error:
                generation.fail(failure_of(error))
            else:
                self._take(generation, logits[-1], self._room(slot))
        self.drop()

    def fail(self, error: RelaxdError) -> None:
        """End all sequences with an error: one of the batch's own, which is no sequence's."""
        for generation in self:
            if generation.finish is None:
                generation.fail(error)
        # A call that failed may have written any part of the KV cache.
        self._slots.forget()
        for generation in self._running:
            if self._speculator is not None:
                self._speculator.forget(generation)
        self._running.clear()
        self._entering = None

    def _drafts(self) -> list[list[int]]:
        """Draft the tokens that the next step verifies after the last one of each sequence."""
        if self._speculator is None:
            return [[] for _ in self._running]
        longest = max(self._slots.length(slot) for slot in range(len(self._running)))
        room = min(self._slots.capacity - longest, self._piece) - 1
        return self._speculator.draft_tokens(self._running, room)

    def _keep(self, generation: Generation, draft: list[int], logits: Logits, room: int) -> int:
        """Accept draft tokens as long as they are those that the sampler chooses, and one token
        more; returns how many were accepted.
        """
        for accepted in range(len(draft) + 1):
            token = self._take(generation, logits[accepted], room - 1 - accepted)
            if generation.finish is not None or accepted == len(draft) or token != draft[accepted]:
                break
        return accepted

    def _take(self, generation: Generation, logits: Logits, room: int) -> int | None:
        """Choose the next token of a sequence; None where an error of its own ended it."""
        try:
            return generation.take(logits, room)
        except BaseException as error:
            generation.fail(failure_of(error))
            return None

    def _leave(self, slot: int) -> None:
        """Free a slot, and close the gap with the last sequence and the one that enters."""
        self._is_full = False
        last = len(self._running) - 1
        times = self._running[slot].times
        if self._running[slot].finish is not None and times:
            self.seconds += _LATELY * (times[-1] - times[0] - self.seconds)
        if self._speculator is not None:
            self._speculator.forget(self._running[slot])
        self._slots.end(slot)
        self._slots.swap(last, slot)
        self._running[slot] = self._running[last]
        self._running.pop()
        if self._entering is not None and self._begun:
            self._slots.swap(last + 1, last)

    def _room(self, slot: int) -> int:
        """The number of tokens that fit after the next one."""
        return self._slots.capacity - self._slots.length(slot)


def failure_of(error: BaseException) -> RelaxdError:
    """The error that ends a completion: of any class, as a panic of a tokenizer in Rust is no
    Exception.
    """
    if isinstance(error, RelaxdError):
        return error
    return RelaxdError(f"the engine failed: {type(error).__name__}: {error}")


def _rank(generation: Generation) -> tuple[bool, int, int]:
    """Sort key: the least important first, of equals the last that came."""
    return generation.settled, generation.priority, -(generation.number or 0)


def _yields(generation: Generation, priority: int) -> bool:
    return generation.priority < priority and not generation.settled
