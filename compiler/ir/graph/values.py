"""Values of a model during import: known arrays (numbers or symbols) and run-time tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import ml_dtypes  # noqa: F401  registers its element types with numpy
import numpy as np
from tvm import relax
from tvm.ir import Expr as PrimExpr

from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent, Scalar
from relaxd.contract.dims.tensors import storage_of


@dataclass(frozen=True, eq=False)
class Known:
    """An array known at import; `data` is numeric, or of objects (int, float, bool, PrimExpr) where
    dims occur in it.
    """

    data: np.ndarray[Any, Any]
    dtype: str

    @classmethod
    def of(cls, data: Any, dtype: str | None = None) -> Known:
        """From a number, an expression, a nested list of them or an array; numeric data is cast to
        `dtype`.
        """
        if isinstance(data, np.ndarray) and data.dtype != object:
            return cls(data.astype(np.dtype(dtype)) if dtype else data, dtype or data.dtype.name)
        dtype = dtype or "int64"
        array = _objects(data)
        if any(isinstance(item, PrimExpr) for item in array.flat):
            return cls(array, dtype)
        return cls(array.astype(np.dtype(dtype)), dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents, all integers."""
        return self.data.shape

    @property
    def storage(self) -> np.ndarray[Any, Any]:
        """The array as a library stores it (see `relaxd.contract.dims.tensors.STORAGE`)."""
        dtype = storage_of(self.dtype)
        if dtype == self.dtype:
            return self.data
        return self.data.view(dtype) if "float" in self.dtype else self.data.astype(dtype)

    @property
    def symbolic(self) -> bool:
        """True if an element is an expression of dims."""
        return self.data.dtype == object

    def scalars(self) -> list[Scalar]:
        """The elements in row-major order as Python values and expressions."""
        return [ex.plain(item) for item in self.data.reshape(-1).tolist()]


@dataclass(frozen=True, eq=False)
class Tensor:
    """A run-time tensor: a Relax expression (a variable) whose extents are all known as
    expressions.

    dtype: the expression's, or an element type that its bytes hold (see `compiler.ir.formats`).
    """

    expr: relax.Expr
    shape: tuple[Extent, ...]
    dtype: str


Value: TypeAlias = Known | Tensor


def _objects(data: Any) -> np.ndarray[Any, Any]:
    """An object array; PrimExpr are kept from numpy's own conversion."""
    if isinstance(data, np.ndarray):
        flat = [ex.plain(item) for item in data.reshape(-1).tolist()]
        shape: tuple[int, ...] = data.shape
    else:
        flat, shape = _flatten(data)
    array = np.empty(len(flat), dtype=object)
    for index, item in enumerate(flat):
        array[index] = item
    return array.reshape(shape)


def _flatten(data: Any) -> tuple[list[Any], tuple[int, ...]]:
    if not isinstance(data, (list, tuple)):
        return [ex.plain(data)], ()
    parts = [_flatten(item) for item in data]
    inner = parts[0][1] if parts else ()
    return [item for flat, _ in parts for item in flat], (len(parts), *inner)
