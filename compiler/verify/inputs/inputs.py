"""The inputs that verify and profile try a library with: one file a point, within a budget of
bytes.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from compiler.ir.caches import CacheUse
from compiler.ir.imported import CallerState, Imported
from compiler.ir.shapes.index_bounds import Limits
from compiler.verify.inputs import array_file, drawing
from compiler.verify.inputs.buffers import step
from compiler.verify.inputs.distributions import Distribution
from compiler.verify.inputs.drawing import Arrays, draw
from compiler.verify.inputs.effort import Note, effort
from compiler.verify.inputs.filling import agreeing, fill_lengths, objection
from compiler.verify.inputs.points import (
    NEGATIVE,
    ZERO,
    Point,
    bytes_of,
    points,
    points_nearby,
    shape_at,
)
from compiler.verify.inputs.repeated import Repeat, find_batch, repeat_at
from compiler.verify.inputs.samples import fit, from_npz
from relaxd.contract.bundle.manifest import Manifest
from relaxd.contract.dims.dims import Dim
from relaxd.contract.dims.tensors import TensorSpec

_MOST_BYTES = 64
"""Bytes of inputs for each element that a trial of a distribution is to have, at most."""


@dataclass(frozen=True)
class Signature:
    """Inputs and outputs of a library; bounds: which values are legal of inputs that index, count
    or bound something.

    quantized: it quantizes activations on the way, where one rounding more or less moves its
    outputs.
    stacks: as in `Imported`.
    examples: of what some inputs hold, drawn from in place of noise.
    caches: how far inputs state that caches are filled.
    in_place: the KV caches that are buffers of the caller; capacity: the dim of their rows, in the
    signature of the model whose inputs and outputs they were.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    dims: tuple[Dim, ...]
    bounds: Limits
    quantized: bool = False
    caches: tuple[CacheUse, ...] = ()
    in_place: CallerState | None = None
    capacity: Dim | None = None
    stacks: bool = False
    examples: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, imported: Imported) -> "Signature":
        """That of an imported model's library."""
        return cls(
            imported.inputs,
            imported.outputs,
            imported.dims,
            imported.index_bounds,
            imported.quantized,
            imported.caches,
            imported.in_place,
            stacks=imported.stacks,
        )

    @property
    def original(self) -> "Signature":
        """That of the model, which has caches for inputs and outputs."""
        if self.in_place is None:
            return self
        replaced = (self.in_place.state.capacity, self.in_place.past.name)
        dims = [dim for dim in self.dims if dim.name not in replaced]
        return replace(
            self,
            inputs=self.in_place.inputs,
            outputs=self.in_place.outputs,
            dims=(*dims, self.in_place.past),
            caches=self.in_place.uses,
            in_place=None,
            capacity=next(d for d in self.dims if d.name == self.in_place.state.capacity),
        )


@dataclass(frozen=True)
class Trial:
    """A point and the file that holds its inputs.

    effort: of a run, in bytes, as `TimeBudget` takes it: of its inputs, until `add_work`.
    repeat: how rows of the inputs repeat, None where they do not.
    """

    index: int
    point: Point
    inputs: Path
    effort: int
    repeat: Repeat | None = None

    def outputs(self, side: str) -> Path:
        """Where one side's outputs go."""
        return self.inputs.with_name(f"{self.index}.{side}.arrays")

    def to_spec(self, side: str, *, distinct: bool = False) -> dict[str, Any]:
        """The form in a task's spec; distinct: of one that computes rows that repeat once."""
        repeat = self.repeat if distinct else None
        share = Fraction(repeat.distinct, repeat.count) if repeat else 1
        return {
            "index": self.index,
            "effort": int(self.effort * share),
            "inputs": str(self.inputs),
            "outputs": str(self.outputs(side)),
            **({"repeat": asdict(repeat)} if repeat else {}),
        }

    def to_json(self) -> dict[str, Any]:
        """The form in numerics.json: the point, and how many rows the reference computed of a
        batch that repeats them.
        """
        rows = {"distinct_rows": self.repeat.distinct} if self.repeat else {}
        return {**self.point.to_json(), **rows}

    def add_work(self, kernels: Iterable[Note]) -> "Trial":
        """Add the kernels' work to the effort: inputs do not grow as the work does where a decoder
        reads weights for each token, and the KV cache for each cached token.
        """
        return replace(self, effort=self.effort + effort(kernels, self.point.dims))


@dataclass(frozen=True)
class LeftOut:
    """A point that was not tried, and why."""

    point: Point
    reason: str

    def to_json(self) -> dict[str, Any]:
        """The form in numerics.json and profile.json."""
        return {**self.point.to_json(), "reason": self.reason}


@dataclass(frozen=True)
class Trials:
    """chosen: cheapest first, the request's own sample before all others."""

    chosen: tuple[Trial, ...]
    left_out: tuple[LeftOut, ...]

    def add_work(self, kernels: Sequence[Note]) -> "Trials":
        """Add the kernels' work to the effort of each."""
        return replace(self, chosen=tuple(trial.add_work(kernels) for trial in self.chosen))


def prepare(
    signature: Signature,
    samples: Path | None,
    seed: int,
    folder: Path,
    max_bytes: int,
    *,
    slow: bool = False,
    more_points: bool = True,
    wanted: Distribution = Distribution.NOISE,
) -> Trials:
    """Draw and write the inputs of every point whose inputs take at most `max_bytes`; raises
    VerifyError for bad samples.

    samples: one point and its inputs, which serve at the other points too: on noise many a model
    finds nothing to say.
    slow: what runs them is slow, so that the points are `points_nearby`; more_points: whether there
    are points beside the samples; wanted: what inputs without samples are drawn from.
    """
    sampled = [from_npz(samples, signature.inputs, signature.dims)] if samples else []
    sample = sampled[0][1] if sampled else None
    chosen = _points(signature, seed, slow=slow) if more_points else ()
    inputs, left_out = _draw_points(signature, chosen, sample, seed, max_bytes, wanted)
    batch = None if samples else find_batch(signature.inputs, signature.outputs, signature.dims)
    repeats = partial(repeat_at, inputs=signature.inputs, batch=batch)
    return Trials(_all_written(folder, chain(sampled, inputs), repeats), left_out)


def prepare_each(
    signature: Signature, wanted: Sequence[Distribution], seed: int, folder: Path, elements: int
) -> tuple[Trial, ...]:
    """One trial for each distribution, at the cheapest point whose inputs have so many elements or
    else at the dearest that has fewer; none where no point has inputs.
    """
    fits = [
        point
        for point in _points(signature, seed, slow=False)
        if _objection(signature, point, elements * _MOST_BYTES) is None
    ]
    large = [point for point in fits if _elements(point, signature.inputs) >= elements]
    chosen = [*large[:1], *fits[::-1]][:1]
    return _all_written(
        folder,
        (
            (Point(each.value, point.dims), _inputs(signature, point, None, seed, each))
            for point in chosen
            for each in wanted
        ),
    )


def prepare_at(
    signature: Signature,
    chosen: Iterable[Point],
    samples: Path | None,
    seed: int,
    folder: Path,
    max_bytes: int,
) -> Trials:
    """`prepare`, at these points and no others."""
    sample = from_npz(samples, signature.inputs, signature.dims)[1] if samples else None
    inputs, left_out = _draw_points(signature, chosen, sample, seed, max_bytes)
    return Trials(_all_written(folder, inputs), left_out)


def _draw_points(
    signature: Signature,
    chosen: Iterable[Point],
    sample: Arrays | None,
    seed: int,
    max_bytes: int,
    wanted: Distribution = Distribution.NOISE,
) -> tuple[Iterator[tuple[Point, Arrays]], tuple[LeftOut, ...]]:
    """The inputs at each point that can have some, drawn when they are asked for, and the points
    that can have none.
    """
    fits, left_out = [], []
    for point in chosen:
        reason = _objection(signature, point, max_bytes)
        if reason is None:
            fits.append(point)
        else:
            left_out.append(LeftOut(point, reason))
    inputs = ((point, _inputs(signature, point, sample, seed, wanted)) for point in fits)
    return inputs, tuple(left_out)


def _objection(signature: Signature, point: Point, max_bytes: int) -> str | None:
    """Why the point has no inputs, None where it may have some."""
    if any(size < 0 for spec in signature.inputs for size in shape_at(spec, point)):
        return "an axis would be negative"
    if bytes_of(point, signature.inputs) > max_bytes:
        return f"its inputs take more than {max_bytes >> 20} MiB"
    return objection(point, signature.caches, signature.capacity) or drawing.objection(
        point, signature.inputs, signature.bounds
    )


def in_buffers(trials: Trials, manifest: Manifest, folder: Path) -> Trials:
    """The trials with the inputs and dims of a library that writes caches in place, in files of
    their own; unchanged for any other library.
    """
    state = manifest.state
    if state is None:
        return trials
    own, chosen = {dim.name for dim in manifest.dims}, []
    for trial in trials.chosen:
        inputs = step(manifest, state, array_file.read(trial.inputs)).inputs
        path = folder / f"{trial.index}.buffers.arrays"
        array_file.write(path, inputs)
        room = inputs[state.caches[0].input].shape[2]
        dims = {name: size for name, size in trial.point.dims.items() if name in own}
        point = Point(trial.point.label, {**dims, state.capacity: room})
        chosen.append(replace(trial, point=point, inputs=path))
    return replace(trials, chosen=tuple(chosen))


def _points(signature: Signature, seed: int, *, slow: bool) -> tuple[Point, ...]:
    chosen = (
        points_nearby(signature.inputs, signature.dims)
        if slow
        else points(signature.inputs, signature.dims, seed)
    )
    once: dict[tuple[int, ...], Point] = {}
    for point in chosen:
        agreed = agreeing(point, signature.dims, signature.caches)
        once.setdefault(tuple(agreed.dims.values()), agreed)
    ordered = sorted(once.values(), key=lambda point: bytes_of(point, signature.inputs))
    if ordered and any(limit.signed for limits in signature.bounds.values() for limit in limits):
        # Behind the point in the middle, where there is room for bounds of either sign.
        middle = len(ordered) // 2
        dims = ordered[middle].dims
        ordered[middle + 1 : middle + 1] = [Point(NEGATIVE, dims), Point(ZERO, dims)]
    return tuple(ordered)


def _elements(point: Point, inputs: Sequence[TensorSpec]) -> int:
    return sum(math.prod(shape_at(spec, point)) for spec in inputs)


def _inputs(
    signature: Signature, point: Point, sample: Arrays | None, seed: int, wanted: Distribution
) -> Arrays:
    """Drawn at the point, the sample in place of what it has; what states the caches' lengths
    follows from the point.
    """
    arrays = draw(point, signature.inputs, signature.bounds, seed, wanted)
    shown = [spec for spec in signature.inputs if spec.name in signature.examples]
    arrays |= fit(dict(signature.examples), point, shown, signature.bounds)
    if sample:
        arrays |= fit(sample, point, signature.inputs, signature.bounds)
    return arrays | fill_lengths(point, signature.inputs, signature.caches, seed)


def _all_written(
    folder: Path,
    points: Iterable[tuple[Point, Arrays]],
    repeats: Callable[[Point], Repeat | None] = lambda point: None,
) -> tuple[Trial, ...]:
    return tuple(
        _write(folder, index, point, inputs, repeats(point))
        for index, (point, inputs) in enumerate(points)
    )


def _write(folder: Path, index: int, point: Point, inputs: Arrays, repeat: Repeat | None) -> Trial:
    path = folder / f"{index}.inputs.arrays"
    array_file.write(path, repeat.fill(inputs) if repeat else inputs)
    return Trial(index, point, path, sum(array.nbytes for array in inputs.values()), repeat)
