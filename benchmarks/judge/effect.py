"""Decides whether a fault that verification passed has an effect, on inputs other than those that
verification drew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from compiler.errors import VerifyError
from compiler.verify.inputs import array_file
from compiler.verify.inputs.distributions import Distribution
from compiler.verify.inputs.inputs import Signature, Trial, prepare
from compiler.verify.sides import NATIVE, Budget, Reference, Runner, ask_reference, run_library

Array = np.ndarray[Any, Any]
SEEDS = (1001, 1002, 1003)
"""Added to the seed of the verification that passed."""
PERTURBATIONS = (11, 12, 13)
"""Seeds of the perturbed references."""
_BUDGET = Budget()


@dataclass(frozen=True)
class Sides:
    """The bundles of the right and the faulty library; runner: of the faulty one."""

    right: Path
    faulty: Path
    runner: Runner


def has_effect(
    sides: Sides, reference: Reference, signature: Signature, seed: int, folder: Path
) -> bool:
    """Tell whether an output of the faulty library differs from the right library's by more than
    the reference's own uncertainty, at any point of a few seeds and distributions.

    The uncertainty is the greatest distance from the reference, over the output, of references with
    perturbed inputs and weights and of the right library.
    """
    for number, more in enumerate(SEEDS):
        wanted = Distribution.LOUD if number == len(SEEDS) - 1 else Distribution.NOISE
        own = folder / str(number)
        own.mkdir()
        trials = prepare(
            signature, None, seed + more, own, _BUDGET.input_bytes, wanted=wanted
        ).chosen
        try:
            if _differ(sides, reference, trials, signature, own):
                return True
        except VerifyError:
            # The faulty library does not even run.
            return True
    return False


def _differ(
    sides: Sides,
    reference: Reference,
    trials: Sequence[Trial],
    signature: Signature,
    folder: Path,
) -> bool:
    answered = ask_reference(reference, trials, folder, _BUDGET).trials
    ran, _ = run_library(sides.right, answered, folder, _BUDGET, NATIVE, "right")
    ran, _ = run_library(sides.faulty, ran, folder, _BUDGET, sides.runner, "faulty")
    perturbed = []
    for number in PERTURBATIONS:
        side = f"perturbed{number}"
        asked = replace(reference, perturbation=number)
        answered = ask_reference(asked, ran, folder, _BUDGET, side).trials
        perturbed.append((side, {trial.index for trial in answered}))
    for trial in ran:
        others = ["right", *(side for side, those in perturbed if trial.index in those)]
        for output in signature.outputs:
            want, right, faulty, *rest = (
                array_file.read(trial.outputs(side), [output.name])[output.name]
                for side in ("reference", "right", "faulty", *others)
            )
            if right.shape != faulty.shape:
                return True
            if distance(right, faulty) > max(distance(want, other) for other in rest):
                return True
    return False


def distance(lhs: Array, rhs: Array) -> float:
    """Return the greatest difference of two outputs, infinite where one alone is finite or their
    shapes differ; of integers and booleans the share that differs.
    """
    if lhs.shape != rhs.shape:
        return float("inf")
    if lhs.dtype.kind in "biu":
        return float((lhs != rhs).mean()) if lhs.size else 0.0
    left, right = lhs.astype(np.float64), rhs.astype(np.float64)
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.abs(left - right))
    return float(np.where(np.isnan(apart), np.inf, apart).max(initial=0.0))
