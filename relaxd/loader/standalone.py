"""Runs libraries that need no runtime, by ctypes."""

import ctypes
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from relaxd.contract.manifest import HELPERS, Manifest
from relaxd.contract.tensors import storage_of
from relaxd.errors import BundleError, InputError
from relaxd.loader.binding import Binding
from relaxd.loader.borrowed import Borrowed
from relaxd.loader.bundle import Bundle
from relaxd.loader.helpers import Helpers
from relaxd.loader.library import own_copy

_LINE = 64
_REMEMBERED_SHAPES = 4096
_LOCK = threading.Lock()
_OPENED: dict[str, ctypes.CDLL] = {}
"""By sha256: a library is opened once, from a copy in memory that nobody overwrites."""

_KEPT: list[Any] = []
"""Callbacks that libraries hold."""

_FUNCTIONS: dict[str, Any] = {
    "size": ctypes.c_size_t,
    "open": ctypes.c_int,
    "bind": ctypes.c_int64,
    "arena": ctypes.c_int,
    "run": ctypes.c_int,
    "shape": ctypes.POINTER(ctypes.c_int64),
    "output": ctypes.c_void_p,
    "failure": ctypes.c_char_p,
    "interface": ctypes.c_void_p,
    "close": None,
}


class _Host(ctypes.Structure):
    """relaxd_host of the header; without `allocate` the library takes memory from malloc."""

    _fields_ = (
        ("user", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("parallel", ctypes.c_void_p),
        ("threads", ctypes.c_int),
    )


class _Interface(ctypes.Structure):
    """relaxd_interface of the header."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("inputs", ctypes.c_int32),
        ("outputs", ctypes.c_int32),
        ("dims", ctypes.c_int32),
        ("parallel", ctypes.c_int32),
        ("input", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
        ("dim", ctypes.c_void_p),
        ("weights", ctypes.c_int64),
    )


@cache
def _helpers(library: ctypes.CDLL) -> Callable[[], Helpers]:
    found = Helpers(library)
    return lambda: found


def helpers_of(bundle: Bundle) -> Callable[[], Helpers]:
    """Gives the library that runs parallel loops, the same for all bundles that bring the same;
    raises BundleError.
    """
    return _helpers(opened_library(bundle, HELPERS))


class Failed(Exception):
    """What a library says of a call that failed, marked like the messages of the virtual
    machine's checks.
    """


class Code:
    """The functions of a bundle's library, and its weights."""

    def __init__(self, bundle: Bundle, library: ctypes.CDLL) -> None:
        manifest = bundle.manifest
        try:
            for name, result in _FUNCTIONS.items():
                function = getattr(library, f"{manifest.entry}_{name}")
                function.restype = result
                setattr(self, name, function)
        except AttributeError as error:
            raise BundleError(
                f"{manifest.library} lacks a function: {error}",
                hint="rebuild the bundle",
                file=manifest.library,
            ) from error
        self.interface_of = _Interface.from_address(self.interface())
        self.weights = _weights(bundle, self.interface_of.weights)

    size: Any
    open: Any
    bind: Any
    arena: Any
    run: Any
    shape: Any
    output: Any
    failure: Any
    interface: Any
    close: Any

    @property
    def parallel(self) -> bool:
        """Whether kernels share out loops among threads."""
        return bool(self.interface_of.parallel)


def _weights(bundle: Bundle, size: int) -> np.ndarray | None:
    """The file of weights, mapped; raises BundleError for one that is too short."""
    if not size:
        return None
    name = bundle.manifest.weights_file
    content = np.memmap(bundle.path(name), mode="r", dtype=np.uint8)
    if content.size < size:
        raise BundleError(
            f"{name} ends before a weight that the library reads",
            hint="fetch the bundle again",
            file=name,
        )
    return content


def opened_library(bundle: Bundle, name: str) -> ctypes.CDLL:
    """A library of a bundle; raises BundleError for a file that changed since the manifest was
    checked, or that cannot be opened.
    """
    expected = bundle.manifest.files[name].sha256
    with _LOCK:
        if expected not in _OPENED:
            path = own_copy(bundle, name)
            try:
                _OPENED[expected] = ctypes.CDLL(str(path))
            except OSError as error:
                raise BundleError(
                    f"{name} cannot be opened: {error}", hint="rebuild the bundle", file=name
                ) from error
        return _OPENED[expected]


def watching(path: Path, watch: Callable[[str, int], Any]) -> ctypes.CDLL:
    """A library that reports each call of a kernel: its name, and 1 before it or 0 behind it."""
    library = ctypes.CDLL(str(path))
    form = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_int)
    callback = form(lambda name, begins: watch(name.decode(), begins))
    ctypes.c_void_p.in_dll(library, "relaxd_watch").value = ctypes.cast(
        callback, ctypes.c_void_p
    ).value
    _KEPT.append(callback)
    return library


def _room(size: int) -> tuple[np.ndarray, int]:
    """Zeroed memory of so many bytes, and its address, a multiple of 64."""
    memory = np.zeros(size + _LINE, np.uint8)
    return memory, -(-_address(memory) // _LINE) * _LINE


def _address(array: np.ndarray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


class _Context:
    """One context of a library: arena, dims, and pointers of inputs and outputs."""

    def __init__(self, code: Code, manifest: Manifest, host: _Host) -> None:
        self._code = code
        self._memory, place = _room(code.size())
        self.pointer = ctypes.c_void_p(place)
        self._host = host
        weights = None if code.weights is None else ctypes.c_void_p(_address(code.weights))
        self._check(code.open(self.pointer, weights, ctypes.byref(host)))
        self.inputs = (ctypes.c_void_p * max(len(manifest.inputs), 1))()
        self.outputs = (ctypes.c_void_p * max(len(manifest.outputs), 1))()
        self._dtypes = [_numpy(storage_of(spec.dtype)) for spec in manifest.outputs]
        self._ranks = [len(spec.shape) for spec in manifest.outputs]
        self._arena: np.ndarray | None = None
        self._bound: tuple[int, ...] | None = None
        self._shapes: list[tuple[int, ...] | None] = []

    def _check(self, status: int) -> None:
        if status:
            raise Failed(f"{{{{{self._code.failure(self.pointer).decode()}}}}}")

    def bind(self, dims: tuple[int, ...]) -> None:
        """Make the context ready for calls at these dims."""
        if dims == self._bound:
            return
        self._bound = None
        values = (ctypes.c_int64 * max(len(dims), 1))(*dims)
        need = self._code.bind(self.pointer, values)
        self._check(min(need, 0))
        if self._arena is None or self._arena.size < need + _LINE:
            self._arena = np.empty(need + _LINE, np.uint8)
        place = -(-_address(self._arena) // _LINE) * _LINE
        self._check(self._code.arena(self.pointer, ctypes.c_void_p(place)))
        self._shapes = [self._shape(i) for i in range(len(self._ranks))]
        self._bound = dims

    def _shape(self, output: int) -> tuple[int, ...] | None:
        """The extents of an output; None while one is unknown."""
        rank = self._ranks[output]
        shape = tuple(self._code.shape(self.pointer, output)[:rank]) if rank else ()
        return None if -1 in shape else shape

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs, in memory of their own."""
        for i, array in enumerate(arrays):
            self.inputs[i] = array.__array_interface__["data"][0]
        made: list[np.ndarray | None] = []
        for i, (shape, dtype) in enumerate(zip(self._shapes, self._dtypes, strict=True)):
            result = None if shape is None else np.empty(shape, dtype)
            self.outputs[i] = None if result is None else result.__array_interface__["data"][0]
            made.append(result)
        self._check(self._code.run(self.pointer, self.inputs, self.outputs))
        return [self._copied(i) if one is None else one for i, one in enumerate(made)]

    def _copied(self, output: int) -> np.ndarray:
        rank, dtype = self._ranks[output], self._dtypes[output]
        shape = tuple(self._code.shape(self.pointer, output)[:rank])
        result = np.empty(shape, dtype)
        if result.nbytes:
            ctypes.memmove(_address(result), self._code.output(self.pointer, output), result.nbytes)
        return result

    def __del__(self) -> None:
        with suppress(AttributeError, TypeError):  # of a context that never opened
            self._code.close(self.pointer)


def _numpy(dtype: str) -> Any:
    if dtype == "bfloat16":
        import ml_dtypes

        return ml_dtypes.bfloat16
    return np.dtype(dtype)


class StandaloneEngine:
    """Runs a library; each call that is under way has a context of its own."""

    machines = None

    def __init__(
        self,
        code: Code,
        manifest: Manifest,
        binding: Binding,
        helpers: Callable[[], Helpers] | None,
        threads: int,
    ) -> None:
        self._code = code
        self._manifest = manifest
        self._binding = binding
        self._helpers = helpers
        self._idle: list[_Context] = []
        self._dims: dict[Any, tuple[int, ...]] = {}
        named = {dim for spec in self._manifest.inputs for axis in spec.shape for dim in axis.dims}
        self._names = sorted(dim.name for dim in self._manifest.dims if dim.name in named)
        self._host = _Host(threads=threads)
        if threads > 1 and helpers is not None:
            self._host.parallel = helpers().parallel

    def session(self, threads: int) -> "StandaloneEngine":
        """Contexts of their own."""
        return StandaloneEngine(self._code, self._manifest, self._binding, self._helpers, threads)

    def over(self, function: Any) -> "StandaloneEngine":
        """There is one entry function alone; raises TypeError."""
        raise TypeError(f"{self._manifest.library} has one entry function")

    def prepare(self, arrays: Sequence[np.ndarray | Borrowed]) -> Sequence[np.ndarray]:
        """The arrays as C has them: dense, in the machine's byte order; raises InputError."""
        return [
            array
            if isinstance(array, np.ndarray) and array.flags.c_contiguous and array.dtype.isnative
            else self._dense(array, position)
            for position, array in enumerate(arrays)
        ]

    def _dense(self, array: np.ndarray | Borrowed, position: int) -> np.ndarray:
        if isinstance(array, Borrowed):
            name = self._manifest.inputs[position].name
            raise InputError(
                f"input {name!r} is a tensor that numpy cannot see",
                hint="give a numpy array; of bfloat16, one of ml_dtypes",
                input=name,
            )
        return np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(array.shape)

    def compute(self, prepared: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run a context that is idle, bound to the dims of the arrays."""
        shapes = tuple([array.shape for array in prepared])
        dims = self._dims.get(shapes)
        if dims is None:
            values = self._binding.solve(shapes)
            dims = tuple(values[name] for name in self._names)
            if len(self._dims) < _REMEMBERED_SHAPES:
                self._dims[shapes] = dims
        context = self._take()
        context.bind(dims)
        result = context.run(prepared)
        self._idle.append(context)
        return result

    def _take(self) -> _Context:
        try:
            return self._idle.pop()
        except IndexError:
            return _Context(self._code, self._manifest, self._host)
