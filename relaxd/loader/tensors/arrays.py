"""Converts numpy arrays to tvm_ffi tensors and back, without a copy where that is safe."""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from relaxd.contract.bundle.manifest import Manifest
from relaxd.loader.tensors.borrowed import Borrowed
from relaxd.loader.tensors.ffi import tvm_ffi
from relaxd.loader.tensors.placement import Placement

_CPU = tvm_ffi.device("cpu", 0)
_OWNERS_OF_A_FRESH_RESULT = 2
"""The Python wrapper, and the array made of it."""


class Transport:
    """Moves arrays in and out of the virtual machine; needs the TVM runtime to be open.

    A library may use aligned vector moves on its arguments and crash on an address that is not a
    multiple of `alignment`: an array is passed as it is when its address fits, and copied when not.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._alignment = manifest.alignment
        self._placement = Placement(manifest.load.device)
        self._allocate = tvm_ffi.get_global_func("runtime.TVMTensorAllocWithScope")
        self._copy = tvm_ffi.get_global_func("runtime.TVMTensorCopyFromTo")
        self._view = tvm_ffi.get_global_func("runtime.TVMTensorCreateView")

    def to_tensor(self, array: np.ndarray | Borrowed, dtype: str) -> Any:
        """A tensor of the array's values, where the kernels run: of any layout, byte order and
        alignment, read-only or empty.
        """
        if isinstance(array, Borrowed):
            return self._aligned(array.tensor)
        if dtype != "bfloat16":
            return self._placement.to_device(self._host_tensor(array, dtype))
        tensor = self._host_tensor(array.view(np.uint16), "uint16")
        return self._placement.to_device(self._view(tensor, tensor.shape, tvm_ffi.dtype(dtype), 0))

    def _aligned(self, tensor: Any) -> Any:
        """The tensor itself where its place and alignment serve, else a copy."""
        if tensor.device == self._placement.device:
            if tensor.data_ptr() % self._alignment == 0:
                return tensor
            copy = self._allocate(tensor.shape, tensor.dtype, tensor.device, None)
            self._copy(tensor, copy)
            return copy
        return self._placement.to_device(self._placement.to_host(tensor))

    def _host_tensor(self, array: np.ndarray, dtype: str) -> Any:
        if array.flags.carray and array.dtype.isnative and array.size:
            tensor = tvm_ffi.from_dlpack(array)
            if tensor.data_ptr() % self._alignment == 0:
                return tensor
        tensor = self._allocate(tvm_ffi.Shape(array.shape), tvm_ffi.dtype(dtype), _CPU, None)
        if array.size:
            np.from_dlpack(tensor)[...] = array
        return tensor

    def to_arrays(self, result: Any, inputs: Sequence[Any]) -> list[np.ndarray]:
        """Arrays of a call's results; each keeps its memory alive and shares it with
        nothing else.
        """
        tensors = [result] if isinstance(result, tvm_ffi.Tensor) else list(result)
        del result
        if not self._placement.on_host:
            return [self._array(self._placement.to_host(tensor)).copy() for tensor in tensors]
        shared = {tensor.data_ptr() for tensor in inputs}
        arrays = []
        for tensor in tensors:
            array = self._array(tensor)
            if tensor.data_ptr() in shared or _owners(tensor) > _OWNERS_OF_A_FRESH_RESULT:
                array = array.copy()
            shared.add(tensor.data_ptr())
            arrays.append(array)
        return arrays

    def _array(self, tensor: Any) -> np.ndarray:
        if str(tensor.dtype) != "bfloat16":
            return np.from_dlpack(tensor)
        import ml_dtypes

        return np.from_dlpack(self._view(tensor, tensor.shape, tvm_ffi.dtype("uint16"), 0)).view(
            ml_dtypes.bfloat16
        )


def _owners(tensor: Any) -> int:
    """The strong reference count in the header of a TVM object: more owners than usual means a
    constant or an alias.
    """
    return ctypes.c_uint32.from_address(tensor.__chandle__()).value
