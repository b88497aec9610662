"""Values that other libraries hold and lend by DLPack: used in place where numpy can see them, and
else as tensors of the runtime.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from relaxd.contract.dims.tensors import TensorSpec
from relaxd.errors import InputError

_CPU = 1
"""DLPack's number of this machine's own memory."""


@dataclass(frozen=True, eq=False)
class Borrowed:
    """A tensor that numpy cannot see: of bfloat16, or on a device. `dtype` is spelled as in
    declarations.
    """

    tensor: Any
    shape: tuple[int, ...]
    dtype: str

    def view_bits(self) -> np.ndarray | None:
        """Unsigned integers over the same memory, one an element; None where it lies on a device,
        or where elements share bytes.
        """
        dtype = self.tensor.dtype
        if self.tensor.device.dlpack_device_type() != _CPU or dtype.bits not in (8, 16):
            return None
        if not math.prod(self.shape):
            return np.empty(self.shape, f"u{dtype.bits // 8}")
        return np.asarray(_Memory(self.tensor, self.shape, f"=u{dtype.bits // 8}"))


class _Memory:
    """An array interface for numpy, which keeps the tensor alive."""

    def __init__(self, tensor: Any, shape: tuple[int, ...], form: str) -> None:
        self._tensor = tensor
        self.__array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": np.dtype(form).str,
            "data": (tensor.data_ptr(), True),
        }


def visible(value: Any) -> Any:
    """Convert a value of another library by DLPack: an array over the same memory, or Borrowed;
    any other value itself. Raises InputError for a tensor that is not contiguous and that numpy
    cannot see.
    """
    if isinstance(value, np.ndarray | np.generic) or not hasattr(value, "__dlpack__"):
        return value
    # torch lends nothing that it would differentiate.
    lent = value.detach() if getattr(value, "requires_grad", False) else value
    try:
        return np.from_dlpack(lent)
    except (BufferError, RuntimeError, TypeError):
        return _borrowed(lent)


def _borrowed(value: Any) -> Borrowed:
    try:
        from relaxd.loader.tensors.ffi import tvm_ffi
    except ImportError as error:
        raise InputError(
            f"numpy cannot see a {type(value).__name__} of this type",
            hint="pip install apache-tvm-ffi, or give a numpy array",
        ) from error
    try:
        tensor = tvm_ffi.from_dlpack(value, require_contiguous=True)
    except Exception as error:
        raise InputError(
            f"a {type(value).__name__} cannot be taken by DLPack: {error}",
            hint="make it contiguous, or give a numpy array",
        ) from error
    return Borrowed(tensor, tuple(tensor.shape), str(tensor.dtype))


def store(results: Mapping[str, Any], out: Mapping[str, Any]) -> dict[str, Any]:
    """The results, those that `out` names copied into its arrays; raises InputError for one of
    another shape or dtype, or that cannot be written.
    """
    return {name: _copied(name, array, out.get(name)) for name, array in results.items()}


def check_out(out: Mapping[str, Any], specs: tuple[TensorSpec, ...]) -> None:
    """Raises InputError for an output that the model has not."""
    known = [spec.name for spec in specs]
    for name in out:
        if name not in known:
            raise InputError(
                f"the model has no output {name!r}", hint=f"its outputs: {', '.join(known)}"
            )


def _copied(name: str, array: np.ndarray, destination: Any) -> Any:
    if destination is None:
        return array
    out = visible(destination)
    if not isinstance(out, np.ndarray):
        raise InputError(
            f"output {name!r}: {type(destination).__name__} is not an array in main memory"
        )
    if out.shape != array.shape or out.dtype != array.dtype or not out.flags.writeable:
        have = f"{out.dtype}{list(out.shape)}" + ("" if out.flags.writeable else ", read-only")
        raise InputError(
            f"output {name!r} is {array.dtype}{list(array.shape)}, the given array is {have}",
            hint="give a writable array of that dtype and shape",
            output=name,
        )
    out[...] = array
    return destination
