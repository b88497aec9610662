"""How far equal roundings of a model may come apart, where sums are added up in other orders.

A sum that differs in its last bits may round to the other neighbour, one part in 256 away; behind
some layers nearly every number does. So where a library with rounded operands departs from the
reference by more than the usual tolerance, the reference is asked again with every number moved by
less than float32 sums differ, before it is rounded: how far its own outputs move is how far the
library's may.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from compiler.isolation.step import Record
from compiler.verify import npz
from compiler.verify.inputs import Signature, Trial
from compiler.verify.judged import SIDES, Judged, judge_all
from compiler.verify.sides import Budget, Reference, ask_reference
from compiler.verify.tolerance import compare
from compiler.verify.unrounded import Wording
from relaxd.contract.options import CompileOptions

NUDGES = (2.0**-21, -(2.0**-21))
"""By what share of themselves numbers are moved."""
BLOCK_NUDGES = (2.0**-19, -(2.0**-19))
"""By what share of the greatest number of their block those of rounded blocks are moved: sums of
thousands of products differ by less.
"""
_JOSTLES = 4
"""How often the library runs with inputs that are moved."""
_HANGING = 1 / 16
"""The share of an output's rows that may hang on the last bits of its inputs: of more, it proves
too little.
"""
_PATIENCE = 3.0
"""How many times its seconds a reference may take that answers trials once more."""
_JOSTLE = 2.0**-19
"""By what share of themselves numbers of inputs are moved, one standard deviation."""
TIMES = 4.0
"""How much further the library may be than the nudged references: they are two samples, and the
greatest of many elements varies.
"""


@dataclass(frozen=True)
class Rounded:
    """What the library and its reference round: the model without that rounding, and the reference
    with its numbers nudged before they are rounded, where roundings depend on them.

    wording: how reports speak of it. pointwise: whether a point's outputs may come apart by what
    they are moved at that point alone, as nudges move every number that a library may round
    otherwise. stated: what reports say of the rounding beside what it changes.
    """

    original: Reference
    wording: Wording
    nudged: tuple[Reference, ...] = ()
    pointwise: bool = False
    stated: Record = field(default_factory=dict)


def nudged_sides(
    ran: Sequence[Trial], rounded: Sequence[Rounded], folder: Path, budget: Budget
) -> tuple[list[str], set[int]]:
    """The sides of the nudged references, and the indices of the trials that all of them answer."""
    # The reference may have answered these just in time, and the machine may be busier by now.
    longer = replace(budget, seconds=_PATIENCE * budget.seconds)
    sides, known = list[str](), {trial.index for trial in ran}
    for number, nudged in enumerate(nudged for one in rounded for nudged in one.nudged):
        sides.append(f"nudged{number}")
        _, answered, _ = ask_reference(nudged, ran, folder, longer, sides[-1])
        known &= {trial.index for trial in answered}
    return sides, known


def judged_beside(
    ran: Sequence[Trial],
    signature: Signature,
    options: CompileOptions,
    rounded: Sequence[Rounded],
    sides: Sequence[str],
) -> list[Judged]:
    """Judged with what equal roundings come apart by, where the usual tolerance is too little."""
    judged = []
    alone = any(one.pointwise for one in rounded)
    for group in [[trial] for trial in ran] if alone else [ran]:
        found = spreads(group, signature, sides)
        slack = {name: TIMES * apart for name, apart in found.items()}
        judged += judge_all(group, signature, options, slack)
    return list(map(undecided_integers, judged))


def judged_without_hanging(
    judged: Sequence[Judged], run: Callable[[Sequence[Trial], str], Sequence[Trial]]
) -> list[Judged]:
    """The same, with outputs that still depart judged by the rows whose numbers do not hang on the
    last bits of the inputs. The nudged references are two samples, and miss a row that hangs on one
    rounding of the library's.

    run: runs the library at trials, writes its outputs under the side's name, and gives the trials
    that it finished.
    """
    departing = {item.trial.index: item.trial for item in judged if item.difference.problem}
    again = run(list(departing.values()), "again")
    sides: dict[int, list[str]] = {
        trial.index: [] for trial in again if same_outputs(trial, "again", "library")
    }
    for number in range(_JOSTLES):
        moved = [jostled(departing[index], number) for index in sides]
        side = f"jostled{number}"
        for trial in run([trial for trial in moved if trial is not None], side):
            sides[trial.index].append(side)
    return [_without_hanging(item, sides.get(item.trial.index, [])) for item in judged]


def _without_hanging(item: Judged, sides: Sequence[str]) -> Judged:
    """Judged by the rows along the last axis that inputs moved by less than sums differ do not move
    as far as a quarter of what they depart by; as it is where these are not nearly all.

    sides: the library's with moved inputs.
    """
    name, trial = item.output.name, item.trial
    got, want, *moved = (npz.read(trial.outputs(side))[name] for side in (*SIDES, *sides))
    if item.difference.problem is None or not moved or got.shape != want.shape or not got.ndim:
        return item
    if got.dtype.kind != "f" or want.dtype != got.dtype:
        return item
    departs = _row_distances(got, want)
    own = np.max([_row_distances(one, got) for one in moved], axis=0)
    hangs = (departs > item.tolerance.slack) & (own * TIMES >= departs)
    if hangs.mean() > _HANGING:
        return item
    found = compare(np.where(hangs[..., None], want, got), want, item.tolerance)
    return replace(item, difference=replace(found, max_abs=item.difference.max_abs))


def _row_distances(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The greatest difference in each row along the last axis; NaN where a number is."""
    apart = np.abs(one.astype(np.float64) - other.astype(np.float64))
    return np.asarray(apart.max(axis=-1, initial=0.0))


def jostled(trial: Trial, number: int) -> Trial | None:
    """The trial with inputs of floats moved at random, by that number; None where it has none."""
    random, inputs = np.random.default_rng(number), npz.read(trial.inputs)
    moved = {
        name: array * (1 + _JOSTLE * random.standard_normal(array.shape)).astype(array.dtype)
        for name, array in inputs.items()
        if array.dtype == np.float32 and array.size
    }
    if not moved:
        return None
    path = trial.inputs.with_name(f"{trial.index}.jostled{number}.inputs.npz")
    npz.write(path, inputs | moved)
    return replace(trial, inputs=path)


def spreads(
    trials: Sequence[Trial], signature: Signature, sides: Sequence[str]
) -> Mapping[str, float]:
    """By output of floats, the greatest difference of the nudged sides from the reference."""
    found = {output.name: 0.0 for output in signature.outputs}
    for trial in trials:
        want = npz.read(trial.outputs("reference"))
        for side in sides:
            moved = npz.read(trial.outputs(side))
            for name in found:
                found[name] = max(found[name], _apart(moved[name], want[name]))
    return found


def same_outputs(trial: Trial, side: str, other: str) -> bool:
    """Whether two sides have the same bytes: what reads memory that nobody wrote may not."""
    one, two = (npz.read(trial.outputs(name)) for name in (side, other))
    return one.keys() == two.keys() and all(
        one[name].tobytes() == two[name].tobytes() for name in one
    )


def _apart(moved: np.ndarray, want: np.ndarray) -> float:
    if want.dtype.kind != "f" or moved.shape != want.shape:
        return 0.0
    finite = np.isfinite(moved) & np.isfinite(want)
    apart = np.abs(moved[finite].astype(np.float64) - want[finite].astype(np.float64))
    return float(apart.max(initial=0.0))


def undecided_integers(item: Judged) -> Judged:
    """An integer that is computed from rounded numbers proves nothing where it differs: a greatest
    element may be another one.
    """
    difference = item.difference
    if difference.problem is None or item.output.dtype.startswith("float"):
        return item
    why = f"{difference.problem}, computed from rounded numbers"
    return replace(item, difference=replace(difference, problem=None, undecided=why))
