"""Caches of a loaded language model: a call gives new tokens alone, and the library writes their
rows into buffers that are kept here.
"""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from relaxd.contract.bundle.state import Part
from relaxd.contract.bundle.state import State as StateSpec
from relaxd.contract.dims.tensors import TensorSpec
from relaxd.errors import CapacityError, InputError, UnknownAdapterError
from relaxd.loader.machine.large_pages import zeros_by_small_pages
from relaxd.loader.tensors.element_types import dtype_of

if TYPE_CHECKING:
    from relaxd.loader.adapters import AdapterStacks
    from relaxd.loader.model import Model

Arrays = dict[str, np.ndarray]
Call = Callable[[Arrays], Arrays]


def _zeros(shape: list[int], dtype: "np.dtype[Any]") -> np.ndarray:
    """Zeros that begin at a page, and with it at a cache line: numpy aligns to 16 bytes, where each
    vector of a row of keys lies in two lines. Their memory is taken as rows are written.
    """
    size = math.prod(shape) * dtype.itemsize
    return zeros_by_small_pages(size).view(dtype).reshape(shape)


def check_capacity(model: "Model", capacity: int | None) -> int:
    """The tokens that a sequence of a model's state may have, by default as many as the model
    admits; raises InputError.
    """
    described = described_state(model)
    dim = next(dim for dim in model.dims if dim.name == described.capacity)
    wanted = dim.highest if capacity is None else capacity
    if wanted is None:
        raise InputError(f"the dim {dim.name} has no maximum", hint="give a capacity, in tokens")
    if not dim.admits(wanted):
        raise InputError(f"the capacity must be {dim.describe()}, got {wanted}")
    return wanted


def described_state(model: "Model") -> StateSpec:
    """The manifest's description of a model's caches; raises InputError where it has none."""
    if model.manifest.state is None:
        raise InputError(
            f"{model.manifest.name} has no state", hint="compile it with the option `state=lifted`"
        )
    return model.manifest.state


def cache_forms(model: "Model", capacity: int) -> "dict[str, tuple[list[int], np.dtype[Any]]]":
    """The shape [heads, capacity, size] of one entry in each cache of a model, by the name of its
    input, and the dtype; raises InputError.
    """
    described = described_state(model)
    specs = {spec.name: spec for spec in model.inputs}
    sizes = {dim.name: dim.min for dim in model.dims if dim.min == dim.max}
    sizes[described.capacity] = capacity
    return {cache.input: _form(specs[cache.input], sizes) for cache in described.caches}


def _form(spec: TensorSpec, sizes: Mapping[str, int]) -> "tuple[list[int], np.dtype[Any]]":
    try:
        shape = [axis.evaluate(sizes) for axis in spec.shape[1:]]
    except KeyError as error:
        raise InputError(
            f"the cache {spec.name!r} has an axis of no fixed size: {error}"
        ) from error
    try:
        return shape, dtype_of(spec.dtype)
    except ImportError as error:
        raise InputError(
            f"the cache {spec.name!r} is {spec.dtype}, which numpy lacks",
            hint="pip install ml_dtypes",
        ) from error


class State:
    """The caches of `entries` sequences, each filled to a length of its own; all of them at once
    for one thread at a time. `Model.state` makes one.
    """

    def __init__(
        self,
        model: "Model",
        entries: int,
        capacity: int | None,
        adapters: "AdapterStacks | None" = None,
    ) -> None:
        described = described_state(model)
        self._model = model
        self._described = described
        self._specs = {spec.name: spec for spec in model.inputs}
        self.capacity = check_capacity(model, capacity)
        self._lengths = np.zeros(entries, np.int64)
        self._buffers = self._allocate()
        self._adapters = _EntryAdapters(model, entries, adapters)
        own = self._buffers.keys() | described.parts.keys() | self._adapters.inputs
        self._given = tuple(spec for spec in model.inputs if spec.name not in own)
        self._free, self._held = self._given, dict[str, np.ndarray]()
        self._calls: dict[tuple[int, int], Call] = {}

    @property
    def lengths(self) -> tuple[int, ...]:
        """How many tokens each entry holds."""
        return tuple(self._lengths.tolist())

    @property
    def ragged(self) -> bool:
        """True if entries of different lengths may take a step together."""
        return self._described.ragged

    @property
    def free(self) -> tuple[TensorSpec, ...]:
        """The inputs that a step has to be given: those that are neither caches, nor say how far
        these are filled, nor are held.
        """
        return self._free

    @property
    def nbytes(self) -> int:
        """The size of the buffers; pages of memory that no token reached are not taken yet."""
        return sum(buffer.nbytes for buffer in self._buffers.values())

    def step(self, tokens: Any, *, first: int = 0) -> Arrays:
        """The model's outputs for new tokens of the entries from `first` on: an array
        [entries, tokens], or arrays by name where the model takes more than tokens.

        Raises CapacityError where they do not fit, InputError for inputs that the model does not
        admit, ExecutionError where the library failed; then nothing changes.
        """
        inputs = self._named(tokens)
        entries, rows = self._extents(inputs)
        before = self._lengths[first : first + entries]
        total = self._checked_total(before, entries, rows)
        self._reserve(first, before + rows)
        call = self._call(first, entries)
        try:
            fill = self._fill_inputs(before, rows, total)
            outputs = call({**inputs, **fill, **self._adapters.numbers_of(first, entries)})
        except BaseException:
            self._clear(first, before.tolist(), rows)
            raise
        before += rows
        return outputs

    def _call(self, first: int, entries: int) -> Call:
        """The model's call for some entries, with what they have kept."""
        call = self._calls.get((first, entries))
        if call is None:
            # As many as an engine uses: each entry alone, and the first ones together.
            if len(self._calls) > 2 * len(self._lengths):
                self._calls.clear()
            bound = {**self._held, **self._buffers}
            chosen = slice(first, first + entries)
            own = {name: array[chosen] for name, array in bound.items()}
            call = self._model.bind_inputs({**own, **self._adapters.stacks})
            self._calls[first, entries] = call
        return call

    def adapt(self, entry: int, number: int) -> None:
        """Give an entry an adapter by its number in the state's stacks, 0 for none. What the entry
        holds stays as it was computed. Raises AdapterError for a number that has no slot.
        """
        self._adapters.choose(entry, number)

    def hold(self, inputs: Mapping[str, Any]) -> None:
        """Gives these inputs to every step from now on, in place of those held before: what stays
        while tokens are added, such as the keys and values that an encoder made. Their first axis
        has all entries, to which they belong: copies and swaps leave them.

        Raises InputError for an input that is no `free` one, or has another number of entries.
        """
        arrays = {name: np.ascontiguousarray(value) for name, value in inputs.items()}
        names = [spec.name for spec in self._given]
        for name, array in arrays.items():
            if name not in names:
                raise InputError(
                    f"input {name!r} cannot be held between steps", hint=f"choose among {names}"
                )
            if array.shape[:1] != self._lengths.shape:
                raise InputError(
                    f"input {name!r} has shape {list(array.shape)}: its first axis must be "
                    f"{len(self._lengths)}, the entries of the state"
                )
        self._held = arrays
        self._calls.clear()
        self._free = tuple(spec for spec in self._given if spec.name not in arrays)

    def reset(self, entry: int | None = None) -> None:
        """Empties an entry, or all of them."""
        for index in range(len(self._lengths)) if entry is None else (entry,):
            self.truncate(index, 0)

    def truncate(self, entry: int, length: int) -> None:
        """Forgets an entry's tokens from `length` on; raises InputError where it has fewer."""
        have = int(self._lengths[entry])
        if not 0 <= length <= have:
            raise InputError(f"entry {entry} has {have} tokens: it cannot be truncated to {length}")
        self._clear(entry, [length], have - length)
        self._lengths[entry] = length

    def copy(
        self, source: int, target: int, length: int | None = None, *, other: "State | None" = None
    ) -> None:
        """Makes the entry `target` hold the first `length` tokens of `source`, by default all.

        other: the state that has `source`, with caches of the same shapes; this one by default.
        Raises InputError where the source has fewer.
        """
        origin = self if other is None else other
        have, before = int(origin._lengths[source]), int(self._lengths[target])
        count = have if length is None else length
        if not 0 <= count <= have:
            raise InputError(f"entry {source} has {have} tokens: {count} cannot be copied from it")
        if origin is not self or source != target:
            self._adapters.copy(origin._adapters, source, target)
            for name, buffer in self._buffers.items():
                buffer[target, :, :count] = origin._buffers[name][source, :, :count]
            self._lengths[target] = max(count, before)
        self.truncate(target, count)

    def swap(self, first: int, second: int) -> None:
        """Exchanges what two entries hold."""
        self._adapters.swap(first, second)
        most = int(self._lengths[[first, second]].max())
        for buffer in self._buffers.values():
            buffer[[first, second], :, :most] = buffer[[second, first], :, :most]
        self._lengths[[first, second]] = self._lengths[[second, first]]

    def fork(self) -> "State":
        """Another state that holds the same tokens and inputs, its caches in buffers of its own."""
        copy = State(self._model, len(self._lengths), self.capacity, self._adapters.shared)
        for entry in range(len(self._lengths)):
            copy._adapters.copy(self._adapters, entry, entry)
        most = int(self._lengths.max(initial=0))
        for name, buffer in self._buffers.items():
            copy._buffers[name][:, :, :most] = buffer[:, :, :most]
        copy._lengths[:] = self._lengths
        copy._held, copy._free = self._held, self._free
        return copy

    def cached(self, name: str, entry: int = 0) -> np.ndarray:
        """The rows [heads, tokens, size] that an entry holds of the cache that is the input
        `name`: a view.
        """
        return self._buffers[name][entry, :, : self._lengths[entry]]

    def _clear(self, first: int, lengths: list[int], rows: int) -> None:
        """Zero so many rows behind the tokens of the entries from `first` on: other entries' calls
        read these rows and weigh them by 0, which a NaN would outlive.
        """
        for buffer in self._buffers.values():
            for entry, length in enumerate(lengths, first):
                buffer[entry, :, length : length + rows] = 0

    def _allocate(self) -> Arrays:
        """The caches' buffers by the names of their inputs."""
        count, capacity = len(self._lengths), self.capacity
        forms = cache_forms(self._model, capacity)
        return {name: _zeros([count, *shape], dtype) for name, (shape, dtype) in forms.items()}

    def _reserve(self, first: int, after: np.ndarray) -> None:
        """Have memory for as many tokens of the entries from `first` on: buffers have it."""

    def _named(self, tokens: Any) -> Arrays:
        if isinstance(tokens, Mapping):
            return {name: np.asarray(value) for name, value in tokens.items()}
        if len(self._free) != 1:
            names = ", ".join(spec.name for spec in self._free)
            raise InputError(
                f"the model takes {len(self._free)} inputs, got one array",
                hint=f"give them by name: {names}",
            )
        (spec,) = self._free
        return {spec.name: np.asarray(tokens, np.dtype(spec.dtype))}

    def _extents(self, inputs: Arrays) -> tuple[int, int]:
        """Entries and new tokens of a call."""
        rows = self._described.rows
        for spec in self._free:
            if spec.name not in inputs or inputs[spec.name].ndim != len(spec.shape):
                continue
            shape = inputs[spec.name].shape
            for axis, extent in enumerate(spec.shape[1:], 1):
                if rows in (extent.text, "1"):
                    return shape[0], 1 if rows == "1" else shape[axis]
        wanted = ", ".join(map(str, self._free))
        raise InputError("no input says how many new tokens there are", hint=f"give {wanted}")

    def _checked_total(self, before: np.ndarray, entries: int, rows: int) -> int:
        """The tokens of the longest entry behind so many new rows."""
        # Of a list: a token waits longer for numpy's functions where weights have driven them out
        # of the caches.
        lengths: list[int] = before.tolist()
        if len(lengths) != entries:
            raise InputError(f"got {entries} entries, the state has {len(self._lengths)}")
        most = max(lengths, default=0)
        if most + rows > self.capacity:
            raise CapacityError(most + rows, self.capacity)
        if not self.ragged and most != min(lengths, default=most):
            raise InputError(
                "entries of different lengths cannot take a step together in this model",
                hint="give one at a time",
            )
        return most + rows

    def _fill_inputs(self, before: np.ndarray, rows: int, total: int) -> Arrays:
        """The inputs that say how far the caches are filled."""
        fill = _Fill(before, before + rows, rows, total)
        values_of = {}
        for name, part in self._described.parts.items():
            spec = self._specs[name]
            values = _PARTS[part](fill).astype(spec.dtype, copy=False)
            # A length of each entry may come with axes of 1 around it.
            if values.ndim < 2 and part is not Part.PAST:
                rank = len(spec.shape)
                values = values.reshape([-1] + [1] * (rank - 1) if rank else ())
            values_of[name] = values
        return values_of


class _EntryAdapters:
    """The adapter of each entry, and the stacks that hold them; nothing of a model without."""

    def __init__(self, model: "Model", entries: int, shared: "AdapterStacks | None") -> None:
        described = model.manifest.adapters
        if shared is None and described is not None:
            from relaxd.loader.adapters import AdapterStacks

            shared = AdapterStacks(model, 1)
        self.shared = shared
        self.stacks: Arrays = shared.inputs if shared is not None else {}
        self._index = None if described is None else described.index
        self._numbers = np.zeros(entries, np.int32)

    @property
    def inputs(self) -> frozenset[str]:
        """The model's inputs that are given here."""
        return frozenset(self.stacks) | ({self._index} if self._index is not None else set())

    def numbers_of(self, first: int, entries: int) -> Arrays:
        """The input that says which adapters some entries have."""
        if self._index is None:
            return {}
        return {self._index: self._numbers[first : first + entries]}

    def choose(self, entry: int, number: int) -> None:
        count = 0 if self.shared is None else self.shared.count
        if not 0 <= number <= count:
            raise UnknownAdapterError(
                f"there is no adapter {number}", hint=f"the state has slots for {count}"
            )
        self._numbers[entry] = number

    def copy(self, origin: "_EntryAdapters", source: int, target: int) -> None:
        self._numbers[target] = origin._numbers[source]

    def swap(self, first: int, second: int) -> None:
        self._numbers[[first, second]] = self._numbers[[second, first]]


class _Fill(NamedTuple):
    """The lengths of entries before and after so many new rows, and the greatest of the latter."""

    before: np.ndarray
    after: np.ndarray
    rows: int
    total: int


_PARTS: dict[Part, Callable[[_Fill], np.ndarray]] = {
    Part.MASK: lambda fill: np.arange(fill.total) < fill.after[:, None],
    Part.LENGTH: lambda fill: fill.after,
    Part.LAST: lambda fill: fill.after - 1,
    Part.TOTAL: lambda fill: np.array(fill.total),
    Part.POSITIONS: lambda fill: fill.before[:, None] + np.arange(fill.rows),
    Part.PAST: lambda fill: np.zeros(fill.total - fill.rows),
}
"""What each part is."""
