"""Where a bundle's kernels run: moves tensors to their device and back, by TVM's runtime."""

from typing import Any

from relaxd.errors import ExecutionError, LoadContractError
from relaxd.loader.tensors.ffi import tvm_ffi

_CPU = tvm_ffi.device("cpu", 0)


_EXISTS = 0
"""TVM's number of the question whether there is such a device."""


class Placement:
    """The first device of one kind, the host (`cpu`) included; raises LoadContractError where the
    runtime that is open has none.
    """

    def __init__(self, device: str) -> None:
        if not tvm_ffi.get_global_func("runtime.GetDeviceAttr")(
            tvm_ffi.device(device, 0).dlpack_device_type(), 0, _EXISTS
        ):
            raise LoadContractError(
                "device", need=device, have=f"a TVM runtime that finds no {device} device"
            )
        self.device = tvm_ffi.device(device, 0)
        self.on_host = device == "cpu"
        self._allocate = tvm_ffi.get_global_func("runtime.TVMTensorAllocWithScope")
        self._copy = tvm_ffi.get_global_func("runtime.TVMTensorCopyFromTo")
        self._synchronise = tvm_ffi.get_global_func("runtime.Device_StreamSync")
        self._failure = tvm_ffi.get_global_func(f"relaxd.{device}.failure", allow_missing=True)

    @property
    def devices(self) -> list[Any]:
        """The devices of a virtual machine: this one, and the host for code outside of kernels."""
        return [_CPU] if self.on_host else [self.device, _CPU]

    def to_device(self, tensor: Any) -> Any:
        """The tensor itself where the device is the host, else a copy of it there."""
        return tensor if self.on_host else self._moved(tensor, self.device)

    def to_host(self, tensor: Any) -> Any:
        """The tensor itself where it lies on the host, else a copy of it there; raises
        ExecutionError for what failed on the device.
        """
        if tensor.device.dlpack_device_type() == _CPU.dlpack_device_type():
            return tensor
        copy = self._moved(tensor, _CPU)
        self._synchronise(self.device, 0)
        if self._failure is not None and (failure := self._failure()):
            raise ExecutionError(f"the device failed: {failure}")
        return copy

    def _moved(self, tensor: Any, device: Any) -> Any:
        copy = self._allocate(tensor.shape, tensor.dtype, device, None)
        self._copy(tensor, copy)
        return copy
