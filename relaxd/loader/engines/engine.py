"""Backends at run time: TVM's virtual machine, or a standalone library."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from relaxd.contract.dims.tensors import TensorSpec, storage_of
from relaxd.loader.tensors.borrowed import Borrowed

if TYPE_CHECKING:
    from relaxd.loader.engines.context import Prepared
    from relaxd.loader.engines.machines import Machines
    from relaxd.loader.tensors.arrays import Transport

Watch = Callable[[str, bool], None]
"""Hears of each call of a kernel: the kernel's name, and whether the call begins or has ended."""


class Engine(Protocol):
    """Runs a library on arrays that were checked."""

    def prepare(self, arrays: Sequence[np.ndarray | Borrowed]) -> Any:
        """Prepare the input of `compute`, before it has the threads to itself. Raises any error."""

    def keep(
        self, arrays: Sequence[np.ndarray | Borrowed | None]
    ) -> Callable[[Sequence[np.ndarray | Borrowed]], Any]:
        """`prepare` for calls that are given the inputs alone that are None here. The others are
        placed once: each call reads what their arrays hold then, where the library can read them
        in place. Raises any error.
        """

    def compute(self, prepared: Any, dims: Mapping[str, int]) -> list[np.ndarray]:
        """The outputs at these values of the dims, each of which owns its memory; raises any
        error.
        """

    def prepare_call(self, arrays: Sequence[np.ndarray | Borrowed]) -> "Prepared | None":
        """A call that reads the arrays where they are; None where it would be no faster."""

    def session(self, threads: int) -> "Engine":
        """The same library, for calls by so many threads."""

    def watch_kernels(self, watch: Watch) -> "Engine | None":
        """The same library, for calls whose kernels `watch` hears of, as it does of no other call;
        None where the library does not report its kernels.
        """


class VirtualMachine:
    """The entry function of TVM's virtual machine, by as many machines as calls run at once."""

    def __init__(
        self, machines: "Machines", transport: "Transport", inputs: Sequence[TensorSpec]
    ) -> None:
        self.machines = machines
        self._transport = transport
        self._inputs = inputs
        self._dtypes = [storage_of(spec.dtype) for spec in inputs]

    def prepare(self, arrays: Sequence[np.ndarray | Borrowed]) -> list[Any]:
        """Tensors of the arrays."""
        return [
            self._transport.to_tensor(array, dtype)
            for array, dtype in zip(arrays, self._dtypes, strict=True)
        ]

    def keep(
        self, arrays: Sequence[np.ndarray | Borrowed | None]
    ) -> Callable[[Sequence[np.ndarray | Borrowed]], list[Any]]:
        """See `Engine.keep`."""
        tensors = [
            None if array is None else self._transport.to_tensor(array, dtype)
            for array, dtype in zip(arrays, self._dtypes, strict=True)
        ]
        left = [position for position, array in enumerate(arrays) if array is None]

        def prepare(others: Sequence[np.ndarray | Borrowed]) -> list[Any]:
            every = tensors.copy()
            for position, array in zip(left, others, strict=True):
                every[position] = self._transport.to_tensor(array, self._dtypes[position])
            return every

        return prepare

    def prepare_call(self, arrays: Sequence[np.ndarray | Borrowed]) -> None:
        """A virtual machine makes its outputs anew."""

    def session(self, threads: int) -> "VirtualMachine":
        """The machines take whatever threads lead them."""
        return self

    def watch_kernels(self, watch: Watch) -> "VirtualMachine":
        """By machines of their own."""
        return VirtualMachine(self.machines.watch_kernels(watch), self._transport, self._inputs)

    def compute(self, prepared: Sequence[Any], dims: Mapping[str, int]) -> list[np.ndarray]:
        """The results leave the virtual machine before the next call enters it; it finds the dims
        by itself.
        """
        return self._transport.to_arrays(self.machines(*prepared), prepared)
