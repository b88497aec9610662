"""What becomes of a draw: a typed error or the defined answer, wherever memory lies."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from compiler.verify.emulation import engine
from tests.fuzz.case import Array
from tests.fuzz.child import Child, Died
from tests.fuzz.hostile.engines import Answer, Order, Question, Refused
from tests.fuzz.hostile.guard import compile_guard
from tests.fuzz.hostile.subject import Subject

_ENGINES = "tests.fuzz.hostile.engines"
_SECONDS = 20
"""Of processor time, for a call of a tiny model: what takes longer does not end."""


class Flavour(StrEnum):
    """Whose library it is."""

    STANDALONE = "standalone"
    VM = "vm"
    WASM = "wasm"


class Verdict(StrEnum):
    """What the library did."""

    ANSWERED = "answered"
    REFUSED = "refused"
    DIED = "died"
    DISCLOSED = "disclosed"
    WRONG = "wrong"
    UNTYPED = "untyped"
    ENDLESS = "endless"
    UNBUILT = "unbuilt"

    @property
    def fault(self) -> bool:
        """Whether it is a finding."""
        return self not in (Verdict.ANSWERED, Verdict.REFUSED)


@dataclass(frozen=True)
class Judgement:
    """A verdict with what shows it."""

    verdict: Verdict
    why: str = ""


class Judge:
    """Builds subjects for a flavour and judges draws of them; its processes end with `stop`."""

    def __init__(self, flavour: Flavour) -> None:
        self._flavour = flavour
        self._folder = tempfile.TemporaryDirectory(prefix="relaxd-hostile-")
        self._guard = str(compile_guard(Path(self._folder.name)))
        preload = self._guard if flavour is Flavour.VM else None
        function = f"{_ENGINES}:{flavour.value}"
        self._makes = Child(f"{_ENGINES}:make", 300)
        self._runs = Child(function, _SECONDS, preload=preload)
        self._knows = Child(f"{_ENGINES}:runtime", _SECONDS)

    def lacking(self) -> str | None:
        """What this machine lacks for the flavour; None when nothing."""
        return engine.lacking() if self._flavour is Flavour.WASM else None

    def stop(self) -> None:
        """End all processes and remove all libraries."""
        for child in (self._makes, self._runs, self._knows):
            child.stop()
        self._folder.cleanup()

    def build(self, subject: Subject) -> Judgement | None:
        """Build the library; None where there is one."""
        made = self._makes.ask(self._order(subject))
        if made is None:
            return None
        return Judgement(Verdict.UNBUILT, made.why)

    def _order(self, subject: Subject) -> Order:
        wasm = self._flavour is Flavour.WASM
        name, target = ("standalone", "wasm32") if wasm else (self._flavour.value, "native")
        model = subject.model.SerializeToString()
        return Order(model, subject.ranges, name, target, self._bundle(subject))

    def _bundle(self, subject: Subject) -> str:
        return f"{self._folder.name}/{subject.name}/bundle"

    def judge(self, subject: Subject, seed: int, number: int) -> Judgement:
        """One draw."""
        feed = subject.feed(seed, number)
        question = Question(self._bundle(subject), self._guard, feed)
        answers = self._runs.ask(question)
        if isinstance(answers, Died):
            return Judgement(
                Verdict.ENDLESS if "no answer" in answers.why else Verdict.DIED, answers.why
            )
        found = _compared(answers)
        if found.verdict is not Verdict.ANSWERED:
            return found
        return self._beside_reference(subject, feed, answers[0])

    def _beside_reference(
        self, subject: Subject, feed: Mapping[str, Array], ours: Sequence[Array]
    ) -> Judgement:
        if not subject.reference:
            return Judgement(Verdict.ANSWERED)
        theirs = self._knows.ask((subject.model.SerializeToString(), feed))
        if isinstance(theirs, (Died, Refused)):
            return Judgement(Verdict.ANSWERED, "alone")
        for mine, wanted in zip(ours, theirs, strict=True):
            if why := _difference(mine, np.asarray(wanted)):
                return Judgement(Verdict.WRONG, why)
        return Judgement(Verdict.ANSWERED)


def _compared(answers: Sequence[Answer]) -> Judgement:
    """Whether both sides gave the same."""
    first, second = answers
    refused = [one for one in answers if isinstance(one, Refused)]
    untyped = [one for one in refused if not one.typed]
    if untyped:
        return Judgement(Verdict.UNTYPED, f"{untyped[0].code}: {untyped[0].why}")
    if len(refused) == 1:
        return Judgement(Verdict.DISCLOSED, f"one side alone fails: {refused[0].why}")
    if isinstance(first, Refused) or isinstance(second, Refused):
        return Judgement(Verdict.REFUSED, refused[0].why)
    for mine, other in zip(first, second, strict=True):
        if mine.shape != other.shape or mine.tobytes() != other.tobytes():
            return Judgement(Verdict.DISCLOSED, f"{_shown(mine)} and {_shown(other)}")
    return Judgement(Verdict.ANSWERED)


def _difference(mine: Array, wanted: Array) -> str | None:
    if mine.shape != wanted.shape or mine.dtype != wanted.dtype:
        return f"{mine.dtype}{list(mine.shape)} in place of {wanted.dtype}{list(wanted.shape)}"
    if mine.dtype.kind == "f":
        near = np.allclose(mine, wanted, 1e-4, 1e-4, equal_nan=True)
    else:
        near = np.array_equal(mine, wanted)
    return None if near else f"{_shown(mine)} in place of {_shown(wanted)}"


def _shown(array: Any) -> str:
    return " ".join(np.array2string(np.asarray(array), threshold=12, edgeitems=4).split())
