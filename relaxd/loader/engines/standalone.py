"""Runs libraries that need no runtime, by ctypes."""

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property, partial
from typing import Any

import numpy as np

from relaxd.contract.bundle.manifest import HELPERS, Manifest
from relaxd.errors import BundleError, InputError
from relaxd.loader.bundles.bundle import Bundle
from relaxd.loader.bundles.library import in_memory, own_copy
from relaxd.loader.bundles.weights import content_of
from relaxd.loader.engines.context import BoundArrays, CallInputs, Context, Prepared
from relaxd.loader.engines.engine import Watch
from relaxd.loader.engines.helpers import Helpers
from relaxd.loader.machine.addresses import address, addresses
from relaxd.loader.tensors.binding import Binding
from relaxd.loader.tensors.borrowed import Borrowed

_LOCK = threading.Lock()
_OPENED: dict[str, ctypes.CDLL] = {}
"""By sha256: a library is opened once, from a copy in memory that nobody overwrites."""

_STATUS, _ADDRESS = ctypes.CFUNCTYPE(ctypes.c_int), ctypes.CFUNCTYPE(ctypes.c_void_p)
_FUNCTIONS: dict[str, Any] = {
    "size": ctypes.CFUNCTYPE(ctypes.c_size_t),
    "open": _STATUS,
    "bind": ctypes.CFUNCTYPE(ctypes.c_int64),
    "arena": _STATUS,
    "run": _STATUS,
    "shape": ctypes.CFUNCTYPE(ctypes.POINTER(ctypes.c_int64)),
    "output": _ADDRESS,
    "failure": ctypes.CFUNCTYPE(ctypes.c_char_p),
    "interface": _ADDRESS,
    "close": ctypes.CFUNCTYPE(None),
}
"""What each function returns; of no arguments, which C takes however many are given."""

_REPORT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int)
"""What a library reports its kernels to."""


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


def helpers_of(bundle: Bundle) -> Callable[[], Helpers]:
    """Gives the library that runs parallel loops, the same for all bundles that bring the same, and
    opens it when it is first asked for, since one thread has no use for it; raises BundleError.
    """
    content = bundle.content(HELPERS)
    return _helpers(bundle.entry(HELPERS).sha256, content)


@cache
def _helpers(digest: str, content: bytes) -> Callable[[], Helpers]:
    return cache(lambda: Helpers(_opened(HELPERS, digest, lambda: in_memory(content))))


class Code:
    """The functions of a bundle's library, and its weights."""

    def __init__(self, bundle: Bundle, library: ctypes.CDLL) -> None:
        manifest = bundle.manifest
        self._entry, self._library = manifest.entry, library
        try:
            for name, form in _FUNCTIONS.items():
                setattr(self, name, form((f"{manifest.entry}_{name}", library)))
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

    @cached_property
    def watch(self) -> Any:
        """The C function that makes a context report its kernels; None where the library cannot, as
        an earlier relaxd made it.
        """
        try:
            return ctypes.CFUNCTYPE(None)((f"{self._entry}_watch", self._library))
        except AttributeError:
            return None

    @property
    def parallel(self) -> bool:
        """True if kernels share out loops among threads."""
        return bool(self.interface_of.parallel)


def _weights(bundle: Bundle, size: int) -> np.ndarray | None:
    """The bytes of the file of weights; raises BundleError for one that is too short."""
    if not size:
        return None
    name = bundle.manifest.weights_file
    content = content_of(bundle, name)
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
    return _opened(name, bundle.entry(name).sha256, lambda: own_copy(bundle, name))


def _opened(name: str, digest: str, path: Callable[[], str]) -> ctypes.CDLL:
    with _LOCK:
        if digest not in _OPENED:
            try:
                _OPENED[digest] = ctypes.CDLL(path())
            except OSError as error:
                raise BundleError(
                    f"{name} cannot be opened: {error}", hint="rebuild the bundle", file=name
                ) from error
        return _OPENED[digest]


class StandaloneEngine:
    """Runs a library; each call that is under way has a context of its own.

    report: what contexts report their kernels to.
    """

    def __init__(
        self,
        code: Code,
        manifest: Manifest,
        binding: Binding,
        helpers: Callable[[], Helpers] | None,
        threads: int,
        report: Any = None,
    ) -> None:
        self._code = code
        self._manifest = manifest
        self._binding = binding
        self._helpers = helpers
        self._report = report
        self._idle: list[Context] = []
        self._none = BoundArrays([None] * len(manifest.inputs))
        named = {dim for spec in self._manifest.inputs for axis in spec.shape for dim in axis.dims}
        self._names = sorted(dim.name for dim in self._manifest.dims if dim.name in named)
        self._host = _Host(threads=threads)
        if threads > 1 and helpers is not None:
            self._host.parallel = helpers().parallel

    def session(self, threads: int) -> "StandaloneEngine":
        """Contexts of their own."""
        return self._apart(threads, None)

    def watch_kernels(self, watch: Watch) -> "StandaloneEngine | None":
        """Contexts of their own, which alone report."""
        if self._code.watch is None:
            return None
        report = _REPORT(lambda user, name, begins: watch(name.decode(), bool(begins)))
        return self._apart(self._host.threads, report)

    def _apart(self, threads: int, report: Any) -> "StandaloneEngine":
        return StandaloneEngine(
            self._code, self._manifest, self._binding, self._helpers, threads, report
        )

    def prepare(self, arrays: Sequence[np.ndarray | Borrowed]) -> CallInputs:
        """The arrays as C has them: dense, in the machine's byte order; raises InputError."""
        return self._beside(self._none, arrays)

    def keep(
        self, arrays: Sequence[np.ndarray | Borrowed | None]
    ) -> Callable[[Sequence[np.ndarray | Borrowed]], CallInputs]:
        """See `Engine.keep`; an array that is not as C has it is copied once."""
        bound = BoundArrays(
            [
                None if array is None else self._dense(position, array)
                for position, array in enumerate(arrays)
            ]
        )
        return partial(self._beside, bound)

    def _beside(self, bound: BoundArrays, others: Sequence[np.ndarray | Borrowed]) -> CallInputs:
        if (pointers := addresses(others)) is not None:
            return CallInputs(bound, others, pointers)
        dense = [
            self._dense(position, one) for position, one in zip(bound.open, others, strict=True)
        ]
        return CallInputs(bound, dense, [address(one) for one in dense])

    def _dense(self, position: int, array: np.ndarray | Borrowed) -> np.ndarray:
        """The array, or a dense copy of it in the machine's byte order; raises InputError."""
        if isinstance(array, np.ndarray) and array.flags.c_contiguous and array.dtype.isnative:
            return array
        if isinstance(array, Borrowed):
            bits = array.view_bits()
            if bits is not None:
                return bits
            name = self._manifest.inputs[position].name
            raise InputError(
                f"input {name!r} is a tensor on a device, or of elements that share bytes",
                hint="give a numpy array, or a tensor in this machine's memory",
                input=name,
            )
        return np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(array.shape)

    def compute(self, prepared: CallInputs, dims: Mapping[str, int]) -> list[np.ndarray]:
        """Run a context that is idle, bound to the dims."""
        context = self._take()
        if context.dims is not dims:  # equal shapes have the same dims
            context.bind(self._values(dims))
            context.dims = dims
        result = context.run(prepared)
        self._idle.append(context)
        return result

    def prepare_call(self, arrays: Sequence[np.ndarray | Borrowed]) -> Prepared | None:
        """See `Context.prepare_call`; None also where arrays cannot be read where they are."""
        prepared = self.prepare(arrays)
        if any(
            one is not other and not isinstance(other, Borrowed)
            for one, other in zip(prepared.others, arrays, strict=True)
        ):
            return None
        context = self._context()
        context.bind(self._values(self._binding.solve(tuple([array.shape for array in arrays]))))
        return context.prepare_call(prepared)

    def _values(self, dims: Mapping[str, int]) -> tuple[int, ...]:
        return tuple([dims[name] for name in self._names])

    def _take(self) -> Context:
        try:
            return self._idle.pop()
        except IndexError:
            return self._context()

    def _context(self) -> Context:
        return Context(self._code, self._manifest, self._host, self._report)
