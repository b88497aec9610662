"""Judges a draw: a typed error or the defined answer, wherever memory lies."""

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
from tests.fuzz.hostile.subject import BaseSubject, Program

_ENGINES = "tests.fuzz.hostile.engines"
_SECONDS = 10
"""Of processor time, for a call of a tiny model: what takes longer does not end."""


class Flavour(StrEnum):
    """Whose library it is."""

    STANDALONE = "standalone"
    VM = "vm"
    WASM = "wasm"


class Verdict(StrEnum):
    """The outcome of a draw."""

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
        """True of a finding."""
        return self not in (Verdict.ANSWERED, Verdict.REFUSED)


@dataclass(frozen=True)
class Judgement:
    """A verdict with what shows it."""

    verdict: Verdict
    why: str = ""


class Judge:
    """Builds subjects for a backend and judges draws of them; its processes end with `stop`."""

    def __init__(self, flavour: Flavour) -> None:
        self._flavour = flavour
        self._folder = tempfile.TemporaryDirectory(prefix="relaxd-hostile-")
        self._guard = str(compile_guard(Path(self._folder.name)))
        preload = self._guard if flavour is Flavour.VM else None
        module = "tests.fuzz.hostile.wasm" if flavour is Flavour.WASM else _ENGINES
        # Without torch, which programs alone need, importing TVM takes a quarter of the time.
        self.makes = {torch: Child(f"{_ENGINES}:make", 300, torch=torch) for torch in (False, True)}
        self._runs = Child(f"{module}:{flavour.value}", _SECONDS, preload=preload)
        self._knows = {
            torch: Child(f"{_ENGINES}:runtime", _SECONDS, torch=torch) for torch in (False, True)
        }

    def lacking(self) -> str | None:
        """Say what this machine lacks for the backend; None when nothing."""
        return engine.lacking() if self._flavour is Flavour.WASM else None

    def stop(self) -> None:
        """End all processes and remove all libraries."""
        for child in (self._runs, *self.makes.values(), *self._knows.values()):
            child.stop()
        self._folder.cleanup()

    def build(self, subject: BaseSubject) -> Judgement | None:
        """Build the library; None where there is one."""
        new = self.makes[isinstance(subject, Program)].ask(self._order(subject))
        if new is None:
            return None
        return Judgement(Verdict.UNBUILT, new.why)

    def _order(self, subject: BaseSubject) -> Order:
        wasm = self._flavour is Flavour.WASM
        name, target = ("standalone", "wasm32") if wasm else (self._flavour.value, "native")
        bundle = self._bundle(subject)
        return Order(subject.content, subject.inputs, subject.ranges, name, target, bundle)

    def _bundle(self, subject: BaseSubject) -> str:
        return f"{self._folder.name}/{subject.name}/bundle"

    def judge(self, subject: BaseSubject, seed: int, number: int) -> Judgement:
        """One draw."""
        feed = subject.feed(seed, number)
        question = Question(self._bundle(subject), self._guard, feed)
        answers = self._runs.ask(question)
        if isinstance(answers, Died):
            return Judgement(
                Verdict.ENDLESS if "no answer" in answers.why else Verdict.DIED, answers.why
            )
        alone = compare_sides(answers)
        if alone.verdict is not Verdict.ANSWERED:
            return alone
        return self._beside_reference(subject, feed, answers[0])

    def _beside_reference(
        self, subject: BaseSubject, feed: Mapping[str, Array], ours: Sequence[Array]
    ) -> Judgement:
        if not subject.reference:
            return Judgement(Verdict.ANSWERED)
        theirs = self._knows[isinstance(subject, Program)].ask((subject.content, feed))
        if isinstance(theirs, (Died, Refused)):
            return Judgement(Verdict.ANSWERED, "alone")
        for mine, wanted in zip(ours, theirs, strict=True):
            if why := _difference(mine, np.asarray(wanted)):
                return Judgement(Verdict.WRONG, why)
        return Judgement(Verdict.ANSWERED)


def compare_sides(answers: Sequence[Answer]) -> Judgement:
    """Judge by the two sides alone: they must agree."""
    first, second = answers
    refused = [answer for answer in answers if isinstance(answer, Refused)]
    untyped = [refusal for refusal in refused if not refusal.typed]
    if untyped:
        return Judgement(Verdict.UNTYPED, f"{untyped[0].code}: {untyped[0].why}")
    if len(refused) == 1:
        return Judgement(Verdict.DISCLOSED, f"one side alone fails: {refused[0].why}")
    if isinstance(first, Refused) or isinstance(second, Refused):
        return Judgement(Verdict.REFUSED, refused[0].why)
    for lhs, rhs in zip(first, second, strict=True):
        # WebAssembly leaves open which NaN an operation gives; what is around is none.
        if not np.array_equal(lhs, rhs, equal_nan=lhs.dtype.kind == "f"):
            return Judgement(Verdict.DISCLOSED, f"{_shown(lhs)} and {_shown(rhs)}")
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
