"""Inputs of a model drawn at random, at chosen values of its dims."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from relaxd.contract.bundle.byte_rows import SCALE_BYTES
from relaxd.contract.bundle.state import State
from relaxd.contract.dims.dims import Dim
from relaxd.contract.dims.names import quote_name
from relaxd.contract.dims.tensors import TensorSpec, storage_of
from relaxd.contract.options import CacheForm
from relaxd.errors import DeclarationError, suggest
from relaxd.loader.byte_rows import quantize_rows
from relaxd.loader.tensors.element_types import dtype_of


def dim_values(dims: tuple[Dim, ...], chosen: Mapping[str, int]) -> dict[str, int]:
    """A value for every dim: the chosen one, else `opt`, else the least; raises DeclarationError
    for one not allowed.
    """
    known = {dim.name: dim for dim in dims}
    for name, value in chosen.items():
        if name not in known:
            hint = f"its dims: {', '.join(map(quote_name, known))}" if known else "it has no dims"
            raise DeclarationError(
                f"the bundle has no dim {name!r}",
                field=f"dims.{name}",
                hint=suggest(name, known, hint),
            )
        if not known[name].admits(value):
            raise DeclarationError(
                f"dim {name!r} cannot be {value}",
                field=f"dims.{name}",
                hint=f"allowed: {known[name].describe()}",
            )
    return {name: chosen.get(name, dim.opt or _least(dim)) for name, dim in known.items()}


def draw(
    inputs: tuple[TensorSpec, ...],
    values: Mapping[str, int],
    seed: int,
    state: State | None = None,
) -> dict[str, np.ndarray]:
    """Standard normal floats, integers 0 or 1 (most integer inputs index something), and booleans;
    types that numpy lacks as `relaxd.Model.run` takes them. Inputs with a default are left out.

    An input's draw depends on the seed, its name and its shape alone. state: the library's, whose
    caches may be rows of floats in bytes.
    """
    in_bytes = () if state is None or state.stored is not CacheForm.INT8 else state.inputs
    return {
        spec.name: (_draw_rows if spec.name in in_bytes and spec.dtype == "int8" else _draw)(
            spec, [axis.evaluate(values) for axis in spec.shape], seed
        )
        for spec in inputs
        if spec.default is None
    }


def _draw_rows(spec: TensorSpec, shape: list[int], seed: int) -> np.ndarray:
    """Bytes of any scale would be numbers of any magnitude."""
    *outer, last = shape
    return quantize_rows(_draw(replace(spec, dtype="float32"), [*outer, last - SCALE_BYTES], seed))


def _draw(spec: TensorSpec, shape: list[int], seed: int) -> np.ndarray:
    if any(size < 0 for size in shape):
        raise DeclarationError(
            f"input {spec.name!r} would have shape {shape}",
            field="dims",
            hint=f"its shape is {spec.text}",
        )
    random = np.random.default_rng([seed, *spec.name.encode()])
    if "float" not in spec.dtype:
        return random.integers(0, 2, shape).astype(storage_of(spec.dtype))
    values = np.asarray(random.standard_normal(shape))
    if spec.dtype == "float8_e8m0fnu":
        values = np.exp2(values.round())
    try:
        return values.astype(dtype_of(spec.dtype))
    except ImportError as error:
        raise DeclarationError(
            f"drawing input {spec.name!r} of {spec.dtype} takes ml_dtypes, which is not installed",
            field=f"inputs.{spec.name}",
            hint="pip install ml_dtypes, or give the input from a file",
        ) from error


def _least(dim: Dim) -> int:
    """The least size; 0 only where no other is allowed, since an empty axis tests little."""
    return dim.lowest or (dim.multiple if dim.admits(dim.multiple) else 0)
