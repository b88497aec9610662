"""A request's own inputs: read from its .npz, checked, and fitted to points."""

import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compiler.errors import VerifyError
from compiler.ir.shapes.index_bounds import Limits
from compiler.verify.inputs import array_file
from compiler.verify.inputs.drawing import Arrays, is_mask, within
from compiler.verify.inputs.points import Point, shape_at
from relaxd.contract.dims.dims import Dim
from relaxd.contract.dims.tensors import STORAGE, TensorSpec
from relaxd.errors import InputError
from relaxd.loader.tensors import element_types

_NO_LIMITS: Limits = {}


def from_npz(path: Path, inputs: Sequence[TensorSpec], dims: Iterable[Dim]) -> tuple[Point, Arrays]:
    """The request's own sample and the point it lies at; raises VerifyError naming the array at
    fault.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError) as error:
        raise _bad_sample(f"the samples are not an .npz of arrays: {error}") from error
    for spec in inputs:
        if spec.default is not None:
            arrays.setdefault(spec.name, np.full((), spec.default, spec.dtype))
        if spec.name not in arrays:
            raise _bad_sample(f"the samples have no array {spec.name!r}")
        if not _holds(arrays[spec.name], spec.dtype):
            raise _bad_sample(
                f"sample {spec.name!r} is {arrays[spec.name].dtype}, the input is {spec.dtype}"
            )
        if arrays[spec.name].ndim != len(spec.shape):
            raise _bad_sample(
                f"sample {spec.name!r} has rank {arrays[spec.name].ndim}, the input is {spec.text}"
            )
    chosen = {spec.name: _typed(arrays[spec.name], spec) for spec in inputs}
    return Point("sample", _solve(chosen, inputs, {dim.name: dim for dim in dims})), chosen


def to_npz(path: Path, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Write the inputs as samples that `from_npz` reads."""
    # np.savez takes names as keywords, of which `file` is its own.
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array_file.storable(array), allow_pickle=False)


def _holds(array: np.ndarray[Any, Any], dtype: str) -> bool:
    if dtype in STORAGE:
        return element_types.is_held(array, dtype)
    wanted = "uint16" if dtype == "bfloat16" else dtype
    return bool(array.dtype.name == wanted)


def _typed(array: np.ndarray[Any, Any], spec: TensorSpec) -> np.ndarray[Any, Any]:
    if spec.dtype not in STORAGE:
        return array_file.view_typed(array, spec.dtype)
    try:
        return element_types.view_as(element_types.bytes_of(array, spec), spec.dtype)
    except InputError as error:
        raise _bad_sample(str(error)) from error


def fit(
    sample: Arrays, point: Point, inputs: Iterable[TensorSpec], limits: Limits = _NO_LIMITS
) -> Arrays:
    """Cut or repeat every axis of the sample to its size at the point. Values keep to `limits`;
    masks are left out, since a part of one may mask everything.
    """
    result = {}
    for spec in inputs:
        array, shape = sample[spec.name], shape_at(spec, point)
        if array.size and not is_mask(spec, limits):
            indices = (
                np.arange(size) % extent for size, extent in zip(shape, array.shape, strict=True)
            )
            cut = array[np.ix_(*indices)].reshape(shape)
            own = limits.get(spec.name)
            result[spec.name] = within(cut, point, own) if own and cut.size else cut
    return result


def _solve(arrays: Arrays, inputs: Sequence[TensorSpec], dims: Mapping[str, Dim]) -> dict[str, int]:
    axes = [
        (spec.name, axis, size)
        for spec in inputs
        for axis, size in zip(spec.shape, arrays[spec.name].shape, strict=True)
    ]
    bound: dict[str, int] = {}
    for _ in axes:
        for _, axis, size in axes:
            if solved := axis.solve(size, bound):
                bound[solved[0]] = solved[1]
    for name, axis, size in axes:
        if not axis.dims <= bound.keys() or axis.evaluate(bound) != size:
            raise _bad_sample(f"sample {name!r} has an axis of {size} where the input has {axis}")
    for dim_name, value in bound.items():
        if not dims[dim_name].admits(value):
            raise _bad_sample(
                f"the samples have {dim_name}={value}, allowed is {dims[dim_name].describe()}"
            )
    return dict(sorted(bound.items()))


def _bad_sample(message: str) -> VerifyError:
    return VerifyError(
        message,
        reason="bad_samples",
        field="samples",
        hint="give an .npz with one array an input, within the declared dims",
    )
