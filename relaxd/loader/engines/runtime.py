"""The TVM runtime of this process: opened once, shared by every bundle."""

import ctypes
import importlib.util
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relaxd.contract.bundle.manifest import RELEASE, THREADS, Manifest
from relaxd.errors import BundleError, LoadContractError
from relaxd.loader.bundles.bundle import Bundle, sha256_of
from relaxd.loader.bundles.library import open_library
from relaxd.loader.bundles.weights import tensors_of
from relaxd.loader.engines.helpers import Helpers
from relaxd.loader.engines.machines import Machines
from relaxd.loader.machine.devices import CUDA_RUNTIME, cuda_runtime

CORE = "libtvm_runtime.so"
PACKAGE = "apache-tvm"
_POOLED_ALLOCATOR = 2


class Runtime:
    """The runtime libraries that are open in this process; `version` is their package's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opened: set[str] = set()
        self.version: str | None = None
        self._helpers: Helpers | None = None

    def require(self, bundle: Bundle) -> None:
        """Open the bundle's runtime libraries unless this process has them.

        Raises LoadContractError when another version is open already: two runtimes in one process
        corrupt each other.
        """
        # This opens libtvm_ffi.so, which the runtime links against.
        from relaxd.loader.tensors.ffi import tvm_ffi  # noqa: F401

        with self._lock:
            mapped = _mapped_libraries()
            if CORE in mapped or CORE in self._opened:
                self._agree(bundle.manifest)
            else:
                self.version = bundle.manifest.load.runtime.get(PACKAGE)
            _open_cuda_runtime(bundle.manifest)
            for name in runtime_libraries(bundle.manifest):
                if name not in mapped and name not in self._opened:
                    _open(_best_copy(bundle, name))
                self._opened.add(name)
            if self._helpers is None:
                self._helpers = Helpers(_open(bundle.path(THREADS)))

    @property
    def helpers(self) -> Helpers:
        """The library that runs the parallel loops of every model; raises BundleError before the
        first bundle.
        """
        if self._helpers is None:
            raise BundleError("this process has opened no bundle", hint="load one with relaxd.load")
        return self._helpers

    def _agree(self, manifest: Manifest) -> None:
        need = manifest.load.runtime.get(PACKAGE)
        have = self.version or getattr(sys.modules.get("tvm"), "__version__", None)
        if need and have and need != have:
            hint = "load bundles of different runtimes in different processes"
            raise LoadContractError(
                "TVM runtime already open in this process", need=need, have=have, hint=hint
            )
        self.version = have or need


def runtime_libraries(manifest: Manifest) -> list[str]:
    """The runtime libraries of a bundle, each after those it links against; BundleError when the
    core or the threads are missing.
    """
    names = sorted(
        name
        for name in manifest.files
        if name.startswith("libtvm_runtime") and name.endswith(".so")
    )
    for needed in (CORE, THREADS):
        if needed not in manifest.files:
            raise BundleError(
                f"the manifest lists no {needed}", hint="rebuild the bundle", file=needed
            )
    return sorted(names, key=lambda name: name != CORE)


def open_model(bundle: Bundle) -> Machines:
    """The entry function of the bundle's library, ready to take tvm_ffi tensors from any thread;
    raises BundleError.
    """
    return Machines(open_executable(bundle).machine)


@dataclass(frozen=True)
class Executable:
    """A library that is open, with its weights where its kernels run."""

    manifest: Manifest
    module: Any
    weights: tuple[Any, ...]
    devices: tuple[int, ...]

    def machine(self) -> tuple[Any, Any]:
        """A new virtual machine, and its entry function: it has the weights bound, and the machine
        keeps nothing of what it returns. Raises BundleError.
        """
        with _translated(self.manifest):
            machine = self.module["vm_load_executable"]()
            machine["vm_initialization"](*self.devices)
            return machine, _released(self._entry_of(machine), machine[RELEASE])

    def _entry_of(self, machine: Any) -> Any:
        entry = self.manifest.entry
        if not self.weights:
            return machine[entry]
        bound = f"{entry} with weights"
        machine["save_function"](entry, bound, 1, *self.weights)
        return machine[bound]


def open_executable(bundle: Bundle) -> Executable:
    """Open the bundle's library and map its weights; raises BundleError."""
    from relaxd.loader.tensors.placement import Placement

    manifest = bundle.manifest
    placement = Placement(manifest.load.device)
    with _translated(manifest):
        library, module = open_library(bundle)
        PROCESS.helpers.serve(library)
        weights = tensors_of(bundle) if manifest.weights else []
        numbers = [
            (device.dlpack_device_type(), device.index, _POOLED_ALLOCATOR)
            for device in placement.devices
        ]
        return Executable(
            manifest,
            module,
            tuple(map(placement.to_device, weights)),
            tuple(number for device in numbers for number in device),
        )


@contextmanager
def _translated(manifest: Manifest) -> Iterator[None]:
    """Whatever the manifest names and the library has not is a BundleError."""
    try:
        yield
    except BundleError:
        raise
    except Exception as error:
        raise BundleError(
            f"{manifest.library} cannot be opened: {error}",
            hint="rebuild the bundle",
            file=manifest.library,
        ) from error


def _released(entry: Callable[..., Any], release: Callable[[], Any]) -> Callable[..., Any]:
    def call(*tensors: Any) -> Any:
        result = entry(*tensors)
        release()
        return result

    return call


def _open_cuda_runtime(manifest: Manifest) -> None:
    """TVM's runtime for CUDA links against it by its bare name, which a library that is open
    already answers to.
    """
    version = manifest.load.runtime.get(CUDA_RUNTIME)
    library = cuda_runtime(version) if version else None
    if library is not None:
        ctypes.CDLL(library, ctypes.RTLD_GLOBAL)


def _open(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path.resolve()), ctypes.RTLD_GLOBAL)
    except OSError as error:
        hint = (
            "the bundle must lie on a file system that allows execution; for a tar, point "
            "TMPDIR at one"
        )
        raise BundleError(
            f"{path.name} cannot be opened: {error}", hint=hint, file=path.name
        ) from error


def _best_copy(bundle: Bundle, name: str) -> Path:
    """An installed tvm's copy when it is the same, byte for byte: a later `import tvm` then finds
    it open, not a second one.
    """
    spec = importlib.util.find_spec("tvm") if "tvm" not in sys.modules else None
    for root in spec.submodule_search_locations or () if spec else ():
        installed = Path(root, "lib", name)
        if installed.is_file() and sha256_of(installed) == bundle.entry(name).sha256:
            return installed
    return bundle.path(name)


def _mapped_libraries() -> frozenset[str]:
    """File names of the TVM runtime libraries that are mapped into this process."""
    paths = (
        line.split(maxsplit=5)[5:] for line in Path("/proc/self/maps").read_text().splitlines()
    )
    names = (Path(path[0].strip().removesuffix(" (deleted)")).name for path in paths if path)
    return frozenset(name for name in names if name.startswith("libtvm_runtime"))


PROCESS = Runtime()
