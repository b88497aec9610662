"""Asks others what the reference was asked, at points where a library departs from it: how far the
reference itself is uncertain, where sums are added up in other orders.

A sum of quantized operands that differs in its last bits may round to the other neighbour, one part
in 256 away; behind some layers nearly every number does. References that quantize are also asked
with numbers perturbed right before they are quantized.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from compiler.isolation.step import Record
from compiler.verify.inputs import array_file
from compiler.verify.inputs.inputs import Trial
from compiler.verify.judge.evidence import Array, Evidence, Indexed
from compiler.verify.quantization_changes import Wording
from compiler.verify.reference.indexed import Source, sources_of
from compiler.verify.reference.onnx import ONNX, exact_engines_of
from compiler.verify.sides import Answered, Budget, Reference, ask_reference

PERTURBATIONS = (2.0**-21, -(2.0**-21))
"""By what share of themselves numbers are moved before they are quantized."""
BLOCK_PERTURBATIONS = (2.0**-19, -(2.0**-19))
"""By what share of the greatest number of their block those of rounded blocks are moved: sums of
thousands of products differ by less.
"""
SAMPLES = 3
"""How many perturbed references are asked at most, those that round among them: one after the
other, as long as a verdict may change. Fewer allow for less noise, so that what agrees beside them
agrees beside all.
"""
MORE_SEEDS = tuple(range(SAMPLES + first, SAMPLES + first + 4) for first in range(0, 20, 4))
"""More perturbations, asked in turn of models that quantize: one number that is rounded to the
other neighbour moves a row, and a sample moves about half of the rows that a library may move.
Decoders of four layers in int4 took up to 11 samples in all."""
_PATIENCE = 3.0
"""How many times the reference's seconds all perturbed references together may take: it may have
answered just in time."""
_SHOWN = "shown"
"""The side of a reference that gives what indices point into."""
_EXACT_SECONDS = 2 / 3
"""Of its seconds what an evaluation in float64 may take."""


@dataclass(frozen=True)
class Quantization:
    """A quantization by the library and its reference: the model without it, and the reference with
    numbers perturbed before they are rounded, where roundings depend on them.

    wording: how reports speak of it. details: what reports say of it beside what it changes.
    """

    original: Reference
    wording: Wording
    perturbed: tuple[Reference, ...] = ()
    details: Record = field(default_factory=dict)


@dataclass(frozen=True)
class Answers:
    """The sides of each trial, by its index, that answered beside the reference.

    quantizing: the perturbed references, by side, that quantize the same numbers as the reference.
    slow: the indices of trials at which a perturbed reference did not answer in time. float64: what
    evaluated in float64, or why nothing did; None where nobody asked. sources: what outputs of
    indices point into; shown: the indices of trials at which the reference gave these values.
    """

    exact: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    perturbed: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    quantizing: Mapping[str, Reference] = field(default_factory=dict)
    slow: frozenset[int] = frozenset()
    float64: str | None = None
    sources: Mapping[str, Source] = field(default_factory=dict)
    shown: frozenset[int] = frozenset()

    @property
    def late(self) -> frozenset[int]:
        """The indices of trials at which no perturbed reference answered in time."""
        return frozenset(index for index in self.slow if not self.perturbed.get(index))

    @property
    def equals(self) -> tuple[str, ...]:
        """The sides that round as the reference does and answered all trials that were asked."""
        answered = self.perturbed.values()
        return tuple(side for side in self.quantizing if all(side in sides for sides in answered))

    def evidence(self, trial: Trial, output: str) -> Evidence:
        """Return what was answered so far of an output of the trial."""
        exact = _read(self.exact.get(trial.index, ()), trial, output)
        perturbed = _read(self.perturbed.get(trial.index, ()), trial, output)
        source = self.sources.get(output)
        if source is None or trial.index not in self.shown:
            return Evidence(exact, perturbed)
        (values,) = _read([_SHOWN], trial, source.value)
        moved = _read(self.perturbed.get(trial.index, ()), trial, source.value)
        return Evidence(exact, perturbed, indexed=Indexed(values, source.axis, moved))


def _read(sides: Iterable[str], trial: Trial, name: str) -> tuple[Array, ...]:
    """The arrays of that name, of the sides that have one."""
    files = (array_file.read(trial.outputs(side), [name]) for side in sides)
    return tuple(arrays[name] for arrays in files if name in arrays)


def show_indexed(
    known: Answers,
    trials: Sequence[Trial],
    outputs: Iterable[str],
    reference: Reference,
    folder: Path,
    budget: Budget,
) -> tuple[Answers, Reference]:
    """Ask the reference what outputs of indices point into, and have perturbed ones of it asked the
    same; nothing where none of the outputs has indices into floats, or the model is no ONNX.
    """
    if exact_engines(reference) != exact_engines_of(ONNX):
        return known, reference
    all_sources = sources_of(reference.model)
    sources = {name: all_sources[name] for name in outputs if name in all_sources}
    if not sources:
        return known, reference
    asked = replace(reference, shown=tuple(source.value for source in sources.values()))
    answer = ask_reference(asked, trials, folder, budget, _SHOWN)
    shown = frozenset(trial.index for trial in answer.trials)
    return replace(known, sources=sources, shown=shown), asked if shown else reference


def perturb_in_turn(
    known: Answers,
    find_trials: Callable[[], Sequence[Trial]],
    reference: Reference,
    quantizations: Sequence[Quantization],
    folder: Path,
    budget: Budget,
) -> Iterator[Answers]:
    """Ask references that round with perturbed numbers, and the reference with inputs and weights
    perturbed by some ulp, one after the other at the trials that `find_trials` has left before
    each: the answers so far, after each.
    """
    moved = [each for part in quantizations for each in part.perturbed]
    quantizing = {f"nudged{number}": each for number, each in enumerate(moved)}
    seeds = range(max(SAMPLES - len(moved), 1))
    perturbed = {f"perturbed{seed}": replace(reference, perturbation=seed) for seed in seeds}
    asked, left = {**quantizing, **perturbed}, _PATIENCE * budget.seconds / 2
    known = replace(known, quantizing=quantizing)
    for number, (side, each) in enumerate(asked.items()):
        if not (trials := find_trials()):
            return
        shared = replace(budget, seconds=2 * max(left / (len(asked) - number), 1.0))
        answer = ask_reference(each, trials, folder, shared, side)
        left -= answer.seconds
        known = _add(known, trials, answer, side)
        yield known


def _add(known: Answers, trials: Sequence[Trial], answer: Answered, side: str) -> Answers:
    """The answers with those of one more perturbed reference."""
    merged = {**{trial.index: () for trial in trials}, **known.perturbed}
    for trial in answer.trials:
        merged[trial.index] = (*merged[trial.index], side)
    labels = {item.point.label for item in answer.left_out if "refused" not in item.reason}
    slow = {trial.index for trial in trials if trial.point.label in labels}
    return replace(known, perturbed=merged, slow=known.slow | slow)


def perturb_more(
    known: Answers,
    trials: Sequence[Trial],
    reference: Reference,
    seeds: Sequence[int],
    folder: Path,
    budget: Budget,
) -> Answers:
    """Add the answers of further perturbed references, in a share of the time of
    `perturb_in_turn`.
    """
    left = _PATIENCE * budget.seconds / len(MORE_SEEDS) / 2
    for number, seed in enumerate(seeds):
        shared = replace(budget, seconds=2 * max(left / (len(seeds) - number), 1.0))
        side, asked = f"perturbed{seed}", replace(reference, perturbation=seed)
        answer = ask_reference(asked, trials, folder, shared, side)
        left -= answer.seconds
        known = _add(known, trials, answer, side)
    return known


def ask_quantizing(
    known: Answers, trials: Sequence[Trial], folder: Path, budget: Budget
) -> tuple[str, ...]:
    """Ask the references that round as the reference does and were not asked at all trials: the
    sides that then answered all of these.
    """
    others = {side: each for side, each in known.quantizing.items() if side not in known.equals}
    answers = {
        side: ask_reference(each, trials, folder, budget, side) for side, each in others.items()
    }
    return tuple(side for side, answer in answers.items() if len(answer.trials) == len(trials))


def evaluate(
    known: Answers,
    trials: Sequence[Trial],
    reference: Reference,
    folder: Path,
    budget: Budget,
    engine: str,
) -> Answers:
    """Add the answers of an evaluation in float64."""
    shorter = replace(budget, seconds=_EXACT_SECONDS * budget.seconds)
    asked = replace(reference, engines=(engine,))
    answer = ask_reference(asked, trials, folder, shorter, engine)
    sides, refused = dict(known.exact), answer.left_out
    for trial in answer.trials:
        sides[trial.index] = (*sides.get(trial.index, ()), engine)
    reported = f"not evaluated: {refused[0].reason}" if refused else None
    reported = answer.engine if answer.trials else reported
    return replace(known, exact=sides, float64=known.float64 if known.exact else reported)


def exact_engines(reference: Reference) -> tuple[str, ...]:
    """Return the evaluations in float64 to ask, in order."""
    return exact_engines_of(reference.engines)
