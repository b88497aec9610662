"""Chooses what inputs are drawn from by what a model makes of it: outputs that hardly vary prove
little.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from compiler.isolation.step import Record
from compiler.verify.inputs import array_file
from compiler.verify.inputs.distributions import Distribution, candidates
from compiler.verify.inputs.drawing import highest
from compiler.verify.inputs.inputs import Signature, prepare_each
from compiler.verify.inputs.points import Point
from compiler.verify.sides import Budget, Reference, ask_reference

_ELEMENTS = {Distribution.PAGES: 3 * 160 * 160, Distribution.TONES: 1 << 13}
_FEW_ELEMENTS = 64
"""The elements of inputs that show enough: a picture of 96 x 96 has room for three lines of text;
of tokens and other numbers a few do, and points with more may take long.
"""
_SECONDS = 20.0
_ENOUGH = 0.05
"""Outputs that deviate so far from their mean say enough; more may be a matter of scale."""
_LITTLE = 1e-3
"""Outputs whose values reach less are about 0."""
_BETTER = 1.25
"""How much more than noise another distribution must say, where noise says little."""

_PRIOR = {Distribution.BRIGHT_PAGES: 0.25, Distribution.LOUD: 0.25}
"""Distributions beyond what most models normalize to, where rounding is amplified: they must say so
much more.
"""


@dataclass(frozen=True)
class Choice:
    """The distribution of inputs; spread: how far outputs deviated from their mean, by
    distribution, of those that were tried.
    """

    distribution: Distribution = Distribution.NOISE
    spread: Mapping[Distribution, float] = field(default_factory=dict)

    def to_json(self) -> Record:
        """The form in numerics.json."""
        spread = {name.value: float(f"{value:.3g}") for name, value in self.spread.items()}
        return {"distribution": self.distribution.value, "spread": spread}


def choose(
    signature: Signature,
    reference: Reference,
    seed: int,
    folder: Path,
    budget: Budget,
    *,
    scaled: bool = False,
) -> Choice:
    """The distribution on which the reference's outputs vary most, at one cheap point; noise where
    inputs are no images, sounds or tokens, or where it says as much as any. scaled: try noise of
    other scales, too, whatever inputs are.
    """
    point = Point("any", {dim.name: dim.lowest for dim in signature.dims})
    most = highest(point, signature.inputs, signature.bounds)
    wanted = candidates(signature.inputs, most, scaled=scaled)
    if len(wanted) == 1:
        return Choice()
    folder.mkdir(exist_ok=True)
    elements = max(_ELEMENTS.get(name, _FEW_ELEMENTS) for name in wanted)
    trials = prepare_each(signature, wanted, seed, folder, elements)
    limited = replace(budget, seconds=min(budget.seconds, 2 * _SECONDS))
    answered = ask_reference(reference, trials, folder, limited).trials
    outputs = {
        Distribution(t.point.label): array_file.read(t.outputs("reference")) for t in answered
    }
    return best({name: spreads_of(arrays) for name, arrays in outputs.items()})


def says_little(numerics: Record) -> bool:
    """True where the reference's outputs of floats, which there are, are about 0 at all points."""
    outputs = numerics.get("outputs", ())
    ranges = [output["range"] for output in outputs if "float" in output["dtype"]]
    return bool(ranges) and max(ranges) < _LITTLE


def best(spreads: Mapping[Distribution, Sequence[float]]) -> Choice:
    """The choice by the spreads of all outputs on each distribution."""
    scores = {
        name: _PRIOR.get(name, 1.0) * float(np.mean([min(spread, _ENOUGH) for spread in each]))
        for name, each in spreads.items()
        if each
    }
    noise = scores.get(Distribution.NOISE, 0.0)
    chosen = max(scores, key=lambda name: scores[name], default=Distribution.NOISE)
    better = scores.get(chosen, 0.0) > _BETTER * noise
    means = {name: float(np.mean(each)) if each else 0.0 for name, each in spreads.items()}
    return Choice(chosen if better else Distribution.NOISE, means)


def spreads_of(outputs: Mapping[str, np.ndarray[Any, Any]]) -> list[float]:
    """The standard deviation of each output, of rows along the last axis from the mean row where
    there are several: rows that are all alike say nothing of what they are computed from.

    Integers count in eighths of their distinct values, and what is empty or not finite not at all.
    """
    return [_spread(array) for array in outputs.values()]


def _spread(array: np.ndarray[Any, Any]) -> float:
    if not array.size:
        return 0.0
    if array.dtype.kind in "biu":
        return _ENOUGH * min((len(np.unique(array)) - 1) / 8, 1.0)
    values = array.astype(np.float64)
    finite = np.isfinite(values)
    values = np.where(finite, values, 0.0)
    rows = values.reshape(-1, values.shape[-1]) if values.ndim > 1 else values[None]
    deviation = values - values.mean() if len(rows) == 1 else rows - rows.mean(axis=0)
    spread = float(deviation.std()) * float(finite.mean())
    return spread if math.isfinite(spread) else 0.0
