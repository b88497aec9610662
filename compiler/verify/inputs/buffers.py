"""Runs a library that writes caches in place as the model that it comes from: caches go in and come
out.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from relaxd.contract.bundle.manifest import Manifest
from relaxd.contract.bundle.state import Part, State
from relaxd.contract.dims.dims import Dim
from relaxd.loader import byte_rows
from relaxd.loader.tensors.element_types import dtype_of

Arrays = dict[str, np.ndarray[Any, Any]]
Feeds = Mapping[str, np.ndarray[Any, Any]]

_SPARE = 3
"""Rows of a buffer that no call may touch: they hold NaN, which would show."""


@dataclass(frozen=True)
class Step:
    """One call. inputs: the library's, with buffers that hold the past; ends: keys of each entry
    after it; columns: rows of the caches that the model gives; dtypes: of the model's caches, which
    the library may store in fewer bits.
    """

    inputs: Arrays
    ends: np.ndarray[Any, Any]
    columns: int
    dtypes: Mapping[str, "np.dtype[Any]"]

    def presents(self, state: State) -> Arrays:
        """The caches as the model gives them, zeros where an entry has no keys."""
        return {cache.output: self._present(cache.input) for cache in state.caches}

    def _present(self, name: str) -> np.ndarray[Any, Any]:
        buffer = self.inputs[name]
        if in_bytes(buffer.dtype, self.dtypes[name]):
            buffer = byte_rows.dequantize_rows(buffer)
        entries, heads, _, size = buffer.shape
        present = np.zeros((entries, heads, self.columns, size), self.dtypes[name])
        for entry, end in enumerate(self.ends):
            present[entry, :, :end] = buffer[entry, :, :end]
        return present


def step(manifest: Manifest, state: State, feeds: Feeds) -> Step:
    """The call that stands for the model's own with these inputs."""
    past = feeds[state.caches[0].input].shape[2]
    rows = _new_rows(manifest, state, feeds)
    ends, total = _ends(state, feeds, past, rows)
    (capacity,) = [dim for dim in manifest.dims if dim.name == state.capacity]
    room = _room(capacity, total)
    inputs = {spec.name: feeds[spec.name] for spec in manifest.inputs if spec.name in feeds}
    dtypes = {cache.input: feeds[cache.input].dtype for cache in state.caches}
    for spec in manifest.inputs:
        if spec.name in dtypes:
            inputs[spec.name] = _buffer(feeds[spec.name], dtype_of(spec.dtype), room, total)
        if state.parts.get(spec.name) is Part.PAST:
            inputs[spec.name] = np.zeros(past, dtype_of(spec.dtype))
    return Step(inputs, ends, max(past, total), dtypes)


def outputs(
    manifest: Manifest, feeds: Feeds, run: Callable[[Feeds, Sequence[str]], Feeds]
) -> Feeds:
    """The outputs by name, those of a library with state as the original gives them.

    run: gives a library's outputs, and what a call left in the inputs that are named.
    """
    state = manifest.state
    if state is None:
        return run(feeds, ())
    call = step(manifest, state, feeds)
    caches = [cache.input for cache in state.caches]
    results = dict(run(call.inputs, caches))
    call.inputs.update({name: results.pop(name) for name in caches})
    return {**results, **call.presents(state)}


def _new_rows(manifest: Manifest, state: State, feeds: Mapping[str, Any]) -> int:
    if state.rows == "1":
        return 1
    for spec in manifest.inputs:
        for axis, extent in enumerate(spec.shape):
            if extent.text == state.rows:
                return int(feeds[spec.name].shape[axis])
    raise AssertionError(f"no input has the axis {state.rows}")


def _ends(
    state: State, feeds: Mapping[str, Any], past: int, rows: int
) -> tuple[np.ndarray[Any, Any], int]:
    """The keys of each entry and the greatest number that any may have."""
    entries = feeds[state.caches[0].input].shape[0]
    if not state.ragged:
        return np.full(entries, past + rows), past + rows
    ends, total = np.full(entries, past + rows), None
    for name, part in state.parts.items():
        values = feeds[name]
        if part is Part.MASK:
            ends, total = values.sum(axis=1), values.shape[1]
        elif part in (Part.LENGTH, Part.LAST):
            ends = values.reshape(-1) + (part is Part.LAST)
        elif part is Part.TOTAL:
            total = int(values.reshape(-1)[0])
    total = int(ends.max()) if total is None else total
    # The first call puts all rows in, padding too.
    return (np.full(entries, rows) if rows == total else ends), total


def _room(capacity: Dim, total: int) -> int:
    """A capacity that the dim admits: with spare rows where it has them."""
    for wanted in (total + _SPARE, total):
        size = -(-max(wanted, capacity.lowest) // capacity.multiple) * capacity.multiple
        if capacity.admits(size):
            return size
    return total


def _buffer(
    past: np.ndarray[Any, Any], dtype: "np.dtype[Any]", room: int, total: int
) -> np.ndarray[Any, Any]:
    in_rows = in_bytes(dtype, past.dtype)
    if in_rows:
        past = byte_rows.quantize_rows(past)
    entries, heads, rows, size = past.shape
    buffer = np.zeros((entries, heads, room, size), dtype)
    copied = min(rows, total)
    buffer[:, :, :copied] = past[:, :, :copied]
    # The bytes of a NaN in scales too.
    buffer[:, :, total:] = -1 if in_rows else np.nan
    return buffer


def in_bytes(stored: "np.dtype[Any]", dtype: "np.dtype[Any]") -> bool:
    """True if a buffer of dtype `stored` has the rows of the model's dtype as bytes with scales."""
    return stored == np.int8 and dtype == np.float32
