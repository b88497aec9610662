"""A context of a library that needs no runtime: its memory, and calls at arrays of numpy."""

import ctypes
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from relaxd.contract.bundle.manifest import Manifest
from relaxd.contract.dims.tensors import storage_of
from relaxd.errors import ExecutionError
from relaxd.loader.engines.failures import Failed
from relaxd.loader.engines.outputs import Outputs, Wanted, reserve
from relaxd.loader.machine.addresses import LINE, address

if TYPE_CHECKING:
    from relaxd.loader.engines.standalone import Code


def _room(size: int) -> tuple[np.ndarray, int]:
    """Zeroed memory of so many bytes, and its address, a multiple of 64."""
    memory = np.zeros(size + LINE, np.uint8)
    return memory, -(-address(memory) // LINE) * LINE


_NUMBERS = count()


class BoundArrays:
    """Inputs that stay where they are for any number of calls; arrays: None for each other.

    number: no other has it. open: the positions of the inputs that a call is given.
    """

    def __init__(self, arrays: Sequence[np.ndarray | None]) -> None:
        self.number = next(_NUMBERS)
        self.open = [position for position, array in enumerate(arrays) if array is None]
        self.addresses = [
            (position, address(array)) for position, array in enumerate(arrays) if array is not None
        ]
        self._arrays = arrays  # whose memory must not go before


class CallInputs(NamedTuple):
    """The inputs of a call: those that are bound, and all others in their order, with their
    addresses.
    """

    bound: BoundArrays
    others: Sequence[Any]
    addresses: Sequence[int]


class Context:
    """One context of a library: arena, dims, and pointers of inputs and outputs; report: a function
    of C's that hears of its kernels.

    dims: whose values it is bound to, for those who bind it.
    """

    dims: Mapping[str, int] | None = None

    def __init__(
        self, code: "Code", manifest: Manifest, host: ctypes.Structure, report: Any = None
    ) -> None:
        self._code = code
        self._memory, start = _room(code.size())
        self.pointer = ctypes.c_void_p(start)
        self._host = host
        weights = None if code.weights is None else ctypes.c_void_p(address(code.weights))
        self._check(code.open(self.pointer, weights, ctypes.byref(host)))
        self._report = report
        if report is not None:
            code.watch(self.pointer, report, None)
        self.inputs = (ctypes.c_void_p * max(len(manifest.inputs), 1))()
        self.outputs = (ctypes.c_void_p * max(len(manifest.outputs), 1))()
        self._dtypes = [_numpy(storage_of(spec.dtype)) for spec in manifest.outputs]
        self._ranks = [len(spec.shape) for spec in manifest.outputs]
        self._dims: ctypes.Array[ctypes.c_int64] | None = None
        self._arena, self._base = np.empty(0, np.uint8), ctypes.c_void_p()
        self._bound: tuple[int, ...] | None = None
        self._arrays_number = -1
        self._wanted: list[Wanted | None] = []
        self._results = Outputs(len(manifest.outputs))

    def _check(self, status: int) -> None:
        if status:
            raise Failed(f"{{{{{self._code.failure(self.pointer).decode()}}}}}")

    def bind(self, dims: tuple[int, ...]) -> None:
        """Make the context ready for calls at these dims."""
        if dims == self._bound:
            return
        self._bound = self.dims = None
        if self._dims is None:
            self._dims = (ctypes.c_int64 * max(len(dims), 1))()
        self._dims[: len(dims)] = list(dims)
        need = self._code.bind(self.pointer, self._dims)
        self._check(min(need, 0))
        if self._arena.size < need + LINE:
            self._arena = reserve(need + LINE)
            self._base.value = -(-address(self._arena) // LINE) * LINE
        self._check(self._code.arena(self.pointer, self._base))
        self._wanted = [self._output(i) for i in range(len(self._ranks))]
        self._bound = dims

    def _output(self, output: int) -> Wanted | None:
        """An output as calls at these dims give it; None while an extent is unknown."""
        shape = self._shape(output)
        return None if -1 in shape else Wanted.of(output, shape, self._dtypes[output])

    def _shape(self, output: int) -> tuple[int, ...]:
        """The extents of an output, -1 for one that only a run knows."""
        rank = self._ranks[output]
        return tuple(self._code.shape(self.pointer, output)[:rank]) if rank else ()

    def run(self, call_inputs: CallInputs) -> list[np.ndarray]:
        """The outputs, in memory of their own."""
        bound, inputs = call_inputs.bound, self.inputs
        if bound.number != self._arrays_number:
            for position, pointer in bound.addresses:
                inputs[position] = pointer
            # Its number alone: a context that waits for a call must hold nobody's caches.
            self._arrays_number = bound.number
        for position, pointer in zip(bound.open, call_inputs.addresses, strict=True):
            inputs[position] = pointer
        results, outputs = self._results, self.outputs
        arrays = [None if wanted is None else results.empty(wanted) for wanted in self._wanted]
        for i, one in enumerate(arrays):
            outputs[i] = None if one is None else address(one)
        self._check(self._code.run(self.pointer, inputs, outputs))
        return [self._copied(i) if one is None else one for i, one in enumerate(arrays)]

    def prepare_call(self, inputs: CallInputs) -> "Prepared | None":
        """A call at these arrays, which takes the context for itself; None where only a run knows
        the extents of an output.
        """
        if None in self._wanted:
            return None
        outputs = self.run(inputs)
        return Prepared(self, self._code.run, inputs, outputs)

    def error_of(self, status: int) -> Failed:
        """The error for a status other than 0."""
        try:
            self._check(status)
        except Failed as error:
            return error
        raise AssertionError(status)

    def _copied(self, output: int) -> np.ndarray:
        wanted = Wanted.of(output, self._shape(output), self._dtypes[output])
        result = self._results.empty(wanted)
        if result.nbytes:
            ctypes.memmove(address(result), self._code.output(self.pointer, output), result.nbytes)
        return result

    def __del__(self) -> None:
        with suppress(AttributeError, TypeError):  # of a context that never opened
            self._code.close(self.pointer)


class Prepared:
    """A call whose inputs and outputs stay where they are."""

    def __init__(
        self,
        context: Context,
        run: Any,
        inputs: CallInputs,
        outputs: list[np.ndarray],
    ) -> None:
        self.outputs = outputs
        self._inputs = inputs
        self._context = context
        self._run = run
        self._arguments = (context.pointer, context.inputs, context.outputs)
        lock = threading.Lock()
        self._begin, self._end = lock.acquire, lock.release

    def __call__(self) -> None:
        """Compute; raises Failed, ExecutionError where another thread is at it."""
        if not self._begin(False):
            raise ExecutionError(
                "the call is under way in another thread, or was when this process was forked",
                hint="prepare a call for each thread",
            )
        try:
            status = self._run(*self._arguments)
        finally:
            self._end()
        if status:
            raise self._context.error_of(status)


def _numpy(dtype: Any) -> np.dtype:
    if dtype == "bfloat16":
        import ml_dtypes

        dtype = ml_dtypes.bfloat16
    known: np.dtype = np.dtype(dtype)
    return known
