"""How far equal roundings of a model may come apart, where sums are added up in other orders.

A sum that differs in its last bits may round to the other neighbour, one part in 256 away; behind
some layers nearly every number does. So where a library with rounded operands departs from the
reference by more than the usual tolerance, the reference is asked again with every number moved by
less than float32 sums differ, before it is rounded: how far its own outputs move is how far the
library's may.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from compiler.verify import npz
from compiler.verify.inputs import Signature, Trial
from compiler.verify.judged import Judged

NUDGES = (2.0**-21, -(2.0**-21))
"""By what share of themselves numbers are moved."""
BLOCK_NUDGES = (2.0**-19, -(2.0**-19))
"""By what share of the greatest number of their block those of rounded blocks are moved: sums of
thousands of products differ by less.
"""
JOSTLES = 4
"""How often inputs are moved."""
_JOSTLE = 2.0**-19
"""By what share of themselves numbers of inputs are moved, one standard deviation."""
TIMES = 4.0
"""How much further the library may be than the nudged references: they are two samples, and the
greatest of many elements varies.
"""


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
    trials: Sequence[Trial], signature: Signature, sides: Sequence[str], base: str = "reference"
) -> Mapping[str, float]:
    """By output of floats, the greatest difference of the sides from the one that they are nudged
    from.
    """
    found = {output.name: 0.0 for output in signature.outputs}
    for trial in trials:
        want = npz.read(trial.outputs(base))
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
