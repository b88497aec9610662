"""Checks of one call: names, dtypes, ranks, and one consistent, allowed value for every dim."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np

from relaxd.contract.dims.axes import Axis
from relaxd.contract.dims.dims import Dim
from relaxd.contract.dims.names import quote_name
from relaxd.contract.dims.tensors import DTYPES, STORAGE, TensorSpec
from relaxd.errors import InputError, suggest
from relaxd.loader.tensors import element_types
from relaxd.loader.tensors.borrowed import Borrowed, visible

_REMEMBERED_SHAPES = 4096
_DTYPES = {name: np.dtype(name) for name in DTYPES - {"bfloat16", *STORAGE}}
_PROBE = 1009

Shapes = tuple[tuple[int, ...], ...]
NOT_VERIFIED: Mapping[str, int] = MappingProxyType({})


class Binding:
    """Checks calls against the model's inputs; shapes that passed once are not checked again.

    verified_up_to: the greatest value of each dim at which outputs were compared with the
    reference's. unverified_runs: how many calls had a dim above it.
    """

    def __init__(
        self,
        inputs: tuple[TensorSpec, ...],
        dims: tuple[Dim, ...],
        verified_up_to: Mapping[str, int] = NOT_VERIFIED,
    ) -> None:
        self._given_ahead = _Solved({}, [])
        self._specs = inputs
        self._wanted = [(spec.name, _numpy_dtype(spec.dtype), spec) for spec in inputs]
        self._names = frozenset(spec.name for spec in inputs)
        self._defaults = {
            spec.name: np.full(
                [axis.evaluate({}) for axis in spec.shape], spec.default, _numpy_dtype(spec.dtype)
            )
            for spec in inputs
            if spec.default is not None
        }
        self._order = [spec.name for spec in inputs]
        self._all_dims = dims
        self._dims = {dim.name: dim for dim in dims}
        self._bounds = {
            dim.name: verified_up_to[dim.name]
            for dim in dims
            if dim.name in verified_up_to and _may_exceed(dim, verified_up_to[dim.name])
        }
        self._passed: dict[Shapes, tuple[dict[str, int], bool]] = {}
        """Shapes to the dims that they imply, and whether one is above what was verified."""
        self._unverified = _Count()

    @property
    def unverified_runs(self) -> int:
        """How many calls had a dim above `verified_up_to`."""
        return self._unverified.value

    def beside(
        self, selected: Mapping[str, Any]
    ) -> tuple[dict[str, np.ndarray | Borrowed], "Binding"]:
        """Some inputs as arrays, checked for as many calls as there will be, and the binding of the
        others in these calls, which counts as this one does; raises InputError.
        """
        ahead = Binding(
            tuple(spec for spec in self._specs if spec.name in selected), self._all_dims
        )
        arrays = dict(zip(ahead._order, ahead.arrays(selected), strict=True))
        others = tuple(spec for spec in self._specs if spec.name not in selected)
        rest = Binding(others, self._all_dims)
        rest._bounds, rest._unverified = self._bounds, self._unverified
        rest._given_ahead = ahead._solved(tuple([array.shape for array in arrays.values()]))
        return arrays, rest

    def arrays(self, inputs: Mapping[str, Any] | Sequence[Any]) -> list[np.ndarray | Borrowed]:
        """The inputs as arrays in the model's order, those left out at their defaults; a list has
        them in that order. Raises InputError naming input, axis, dim, value and range.
        """
        return self.convert(inputs)[0]

    def convert(
        self, inputs: Mapping[str, Any] | Sequence[Any]
    ) -> tuple[list[np.ndarray | Borrowed], Mapping[str, int]]:
        """Convert inputs as `arrays` does; returns them, and the dims that their shapes imply."""
        if not isinstance(inputs, Mapping):
            inputs = self._named(inputs)
        if inputs.keys() != self._names:
            inputs = {**self._defaults, **inputs}
        if inputs.keys() != self._names:
            self._wrong_names(inputs)
        arrays = [
            value
            if type(value := inputs[name]) is np.ndarray and value.dtype is dtype
            else _as_input(spec, dtype, value)
            for name, dtype, spec in self._wanted
        ]
        shapes = tuple([array.shape for array in arrays])
        values, beyond = self._passed.get(shapes) or self._pass(shapes)
        if beyond:
            self._unverified.add()
        return arrays, values

    def _named(self, values: Sequence[Any]) -> dict[str, Any]:
        names = self._order
        if not isinstance(values, list | tuple) or len(values) > len(names):
            have = f"{len(values)}" if isinstance(values, list | tuple) else type(values).__name__
            raise InputError(
                f"the model has {len(names)} inputs, got {have}",
                hint=f"give them by name, or as a list in this order: {', '.join(names)}",
            )
        return dict(zip(names, values, strict=False))

    def _pass(self, shapes: Shapes) -> tuple[dict[str, int], bool]:
        values = self._solved(shapes).values
        beyond = any(values.get(name, top) > top for name, top in self._bounds.items())
        if len(self._passed) < _REMEMBERED_SHAPES:
            self._passed[shapes] = values, beyond
        return values, beyond

    def solve(self, shapes: Shapes) -> Mapping[str, int]:
        """The dims that input shapes imply; raises InputError where they contradict the specs, the
        ranges or each other.
        """
        return (self._passed.get(shapes) or self._pass(shapes))[0]

    def _solved(self, shapes: Shapes) -> "_Solved":
        axes = list(self._given_ahead.open)
        for spec, shape in zip(self._specs, shapes, strict=True):
            if len(shape) != len(spec.shape):
                raise InputError(
                    f"input {spec.name!r} must be {spec.text}, with {_axes_text(len(spec.shape))}; "
                    f"got {_axes_text(len(shape))}",
                    input=spec.name,
                    shape=list(shape),
                    expected=spec.text,
                )
            axes += [
                _AxisValue(spec.name, i, axis, size)
                for i, (axis, size) in enumerate(zip(spec.shape, shape, strict=True))
            ]
        values = dict(self._given_ahead.values)
        pending = sorted(axes, key=lambda axis: axis.axis.symbol is None)
        while pending and (ready := [axis for axis in pending if axis.bind(values, self._dims)]):
            pending = [axis for axis in pending if axis not in ready]
        return _Solved(values, pending)

    def _wrong_names(self, inputs: Mapping[str, Any]) -> NoReturn:
        known = ", ".join(str(spec) for spec in self._specs) or "none"
        for name in inputs:
            if name not in self._names:
                raise InputError(
                    f"the model has no input {name!r}",
                    hint=suggest(name, self._names, f"its inputs: {known}"),
                    input=name,
                )
        missing = [spec.name for spec in self._specs if spec.name not in inputs]
        raise InputError(
            f"missing input {', '.join(map(repr, missing))}",
            hint=f"its inputs: {known}",
            input=missing[0],
        )


class _AxisValue:
    """One axis of one input, with the size that a call gave it."""

    def __init__(self, name: str, index: int, axis: Axis, size: int) -> None:
        self.name, self.index, self.axis, self.size = name, index, axis, size

    def bind(self, values: dict[str, int], dims: dict[str, Dim]) -> bool:
        """Check the axis, binding its one unknown dim; False while more than one is unknown; raises
        InputError.
        """
        unknown = self.axis.dims - values.keys()
        if not unknown:
            try:
                self._compare(self.axis.evaluate(values), values)
            except ZeroDivisionError as error:
                raise self._wrong(
                    f"has no size: it divides by 0 where {_listed(self.axis, values)}", dim=None
                ) from error
            return True
        if len(unknown) > 1:
            return False
        (name,) = unknown
        solved = self.axis.solve(self.size, values)
        if solved is None:
            if _linear(self.axis, name, values):
                raise self._wrong(
                    f"must be {self.axis} for a whole number {quote_name(name)}; got {self.size}",
                    dim=name,
                )
            return False
        value = solved[1]
        dim = dims.get(name, Dim(name))
        if not dim.admits(value):
            where = (
                f"has size {self.size}"
                if self.axis.symbol
                else f"has size {self.size}, so {quote_name(name)} = {value}"
            )
            raise self._wrong(
                f"{where}; {quote_name(name)} must be {dim.describe()}",
                dim=name,
                value=value,
                allowed=dim.describe(),
            )
        values[name] = value
        return True

    def _compare(self, expected: int, values: dict[str, int]) -> None:
        if self.size == expected:
            return
        known = _listed(self.axis, values)
        where = f", where {known}" if known else ""
        raise self._wrong(
            f"must be {expected}{where}; got {self.size}",
            dim=self.axis.symbol,
            value=self.size,
            allowed=str(expected),
        )

    def _wrong(self, what: str, **details: Any) -> InputError:
        # A fixed size says nothing that the message does not say.
        axis = f"axis {self.index} ({self.axis})" if self.axis.dims else f"axis {self.index}"
        return InputError(
            f"input {self.name!r}: {axis} {what}",
            input=self.name,
            axis=self.index,
            size=self.size,
            **details,
        )


@dataclass(frozen=True)
class _Solved:
    """The dims that shapes imply, and the axes with more than one unknown dim."""

    values: dict[str, int]
    open: list[_AxisValue]


class _Count:
    """A number that threads add to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.value = 0

    def add(self) -> None:
        """One more."""
        with self._lock:
            self.value += 1


def _may_exceed(dim: Dim, top: int) -> bool:
    return dim.highest is None or dim.highest > top


def _numpy_dtype(name: str) -> np.dtype | None:
    """The numpy dtype; None for those that numpy knows only after ml_dtypes is imported and
    which are recognised by name.
    """
    return _DTYPES.get(name)


def _as_input(spec: TensorSpec, dtype: np.dtype | None, value: Any) -> np.ndarray | Borrowed:
    """The value as an array of exactly the spec's dtype, in any byte order, or of the bytes that
    hold it; raises InputError, never casts.
    """
    if type(value) is not np.ndarray:
        value = visible(value)
        if isinstance(value, Borrowed):
            if value.dtype != spec.dtype:
                raise _wrong_dtype(spec, value.dtype)
            return value
    array = value if type(value) is np.ndarray else np.asarray(value)
    if spec.dtype in STORAGE and element_types.is_held(array, spec.dtype):
        return element_types.bytes_of(array, spec)
    if array.dtype is not dtype and array.dtype.name != spec.dtype:
        raise _wrong_dtype(spec, str(array.dtype))
    return array


def _wrong_dtype(spec: TensorSpec, dtype: str) -> InputError:
    return InputError(
        f"input {spec.name!r} must be {spec.dtype}, got {dtype}",
        hint="inputs are not cast: convert it with .astype(...)",
        input=spec.name,
        dtype=dtype,
        expected=spec.dtype,
    )


def _axes_text(count: int) -> str:
    return f"{count} {'axis' if count == 1 else 'axes'}"


def _listed(axis: Axis, values: dict[str, int]) -> str:
    return ", ".join(f"{quote_name(name)} = {values[name]}" for name in sorted(axis.dims))


def _linear(axis: Axis, name: str, values: dict[str, int]) -> bool:
    """True if the axis is linear in the dim, so that no solution means no value fits."""
    try:
        size = axis.evaluate({**values, name: _PROBE})
    except ZeroDivisionError:
        return False
    return axis.solve(size, values) == (name, _PROBE)
