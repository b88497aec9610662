"""Asks the reference while the library is compiled: its answers do not depend on it."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import TypeAlias

from compiler.verify.choosing import Choice
from compiler.verify.inputs.effort import Note
from compiler.verify.inputs.inputs import Trials
from compiler.verify.progress import OnStep, Step
from compiler.verify.report import ask_patiently, trials_to_ask
from compiler.verify.sides import Answered, Budget, Reference
from compiler.verify.uncertainty import Quantization

Sampled: TypeAlias = tuple[Choice, Trials]
References: TypeAlias = tuple[Reference, tuple[Quantization, ...]]


class Ahead:
    """The reference's side of a verification, in a thread from `draw` on; the end of the context
    ends it, however far it is.

    on_step: gets how far it is, once somebody waits for it.
    """

    def __init__(self, on_step: OnStep) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="reference")
        self._cancelled, self._awaited = Event(), Event()
        self._on_step = on_step
        self._sampled: Future[Sampled] | None = None
        self._references: Future[References] | None = None
        self._answer: Future[Answered] | None = None

    def __enter__(self) -> "Ahead":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.cancel()

    def draw(self, draw: Callable[[Callable[[], bool]], Sampled]) -> None:
        """Begin with the inputs; draw: is given what tells whether nobody wants them any more."""
        self._sampled = self._pool.submit(draw, self._cancelled.is_set)

    def ask(
        self,
        references: Callable[[], References],
        kernels: Sequence[Note],
        folder: Path,
        budget: Budget,
    ) -> None:
        """Ask the reference at the trials that were sampled, if some were; kernels: those of the
        library, which tell how much there is to do.
        """
        if self._sampled is None:
            return
        limited = replace(budget, on_step=self._report, cancelled=self._cancelled.is_set)

        def answer(sampled: Future[Sampled], known: Future[References]) -> Answered:
            trials, (reference, _) = sampled.result()[1].add_work(kernels), known.result()
            return ask_patiently(reference, trials_to_ask(reference, trials), folder, limited)

        self._references = self._pool.submit(references)
        self._answer = self._pool.submit(answer, self._sampled, self._references)

    def wait_for_inputs(self) -> Sampled | None:
        """Return what `draw` gave, of trials that the reference is asked at; None where it is not.
        Raises what `draw` raised.
        """
        if self._answer is None or self._sampled is None or self._cancelled.is_set():
            return None
        return self._sampled.result()

    def wait_for_references(self) -> References:
        """The reference that is asked, and those of quantizations."""
        assert self._references is not None
        return self._references.result()

    def wait_for_answer(self) -> Answered:
        """The reference's answer."""
        assert self._answer is not None
        self._awaited.set()
        return self._answer.result()

    def cancel(self) -> None:
        """End it, and wait until it has ended."""
        self._cancelled.set()
        self._pool.shutdown(cancel_futures=True)

    def _report(self, step: Step) -> None:
        if self._awaited.is_set():
            self._on_step(step)
