"""The bundle's manifest: everything that a loader checks before it opens the library."""

from dataclasses import asdict, dataclass, field
from typing import Any

from relaxd.contract.dims import Dim
from relaxd.contract.tensors import DTYPES, TensorSpec
from relaxd.errors import BundleError, DeclarationError

SCHEMA_VERSION = 1
FILENAME = "manifest.json"
DUMP_START = "00_import.py"
"""The first file of a dump of the compiler, by which its folder is known."""
REPRODUCER_START = "reproducer.json"
"""The file of a mismatch's reproducer by which its folder is known."""

THREADS = "librelaxd_threads.so"
"""What a bundle for Linux brings to run its parallel loops; another interface of it takes another
name.
"""
RELEASE = "release"
"""The library's function that computes nothing: the virtual machine holds the result of its last
call, so this makes it let go.
"""


@dataclass(frozen=True)
class FileEntry:
    """One file of the bundle: lower-case hex sha256 and size in bytes."""

    sha256: str
    size: int


@dataclass(frozen=True)
class Weight:
    """One constant of the library: raw little-endian values in C order at `offset` bytes of the
    weights file.
    """

    dtype: str
    shape: tuple[int, ...]
    offset: int

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise BundleError(
                f"the manifest is malformed: a weight has the unknown dtype {self.dtype!r}"
            )


@dataclass(frozen=True)
class LoadContract:
    """What the machine must have; empty or None where nothing is needed.

    arch: `x86_64`, `aarch64`...; os: `linux`...; isa: feature names as Linux spells them in
    /proc/cpuinfo.
    device: what runs the kernels; sm: NVIDIA's architecture (`sm_90`); driver: the device driver's
    least version, as in `12.0`.
    libc: the least glibc, as in `2.28`; runtime: package name to the exact version the library was
    built with.
    """

    arch: str
    os: str = "linux"
    isa: tuple[str, ...] = ()
    libc: str | None = None
    device: str = "cpu"
    sm: str | None = None
    driver: str | None = None
    runtime: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """Everything about a bundle; `target` and `toolchain` are JSON documents, `action_key` has
    `digest` and `parts`.

    weights: the entry function's last arguments, in order, from the file `weights_file`; empty when
    the library holds all.
    alignment: bytes of which the address of every input must be a multiple; 1 where an array may
    lie wherever numpy puts it.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    dims: tuple[Dim, ...]
    target: dict[str, Any]
    load: LoadContract
    action_key: dict[str, Any]
    toolchain: dict[str, str]
    files: dict[str, FileEntry] = field(default_factory=dict)
    library: str = "model.so"
    entry: str = "main"
    weights: tuple[Weight, ...] = ()
    weights_file: str = "weights.bin"
    memory: dict[str, Any] = field(default_factory=dict)
    alignment: int = 64
    schema_version: int = SCHEMA_VERSION

    def to_json(self) -> dict[str, Any]:
        """The document stored as manifest.json."""
        document = asdict(self)
        document["inputs"] = [spec.to_json() for spec in self.inputs]
        document["outputs"] = [spec.to_json() for spec in self.outputs]
        document["dims"] = {dim.name: dim.to_json() for dim in self.dims}
        document["load"]["isa"] = list(self.load.isa)
        return document

    @classmethod
    def from_json(cls, document: Any) -> "Manifest":
        """Inverse of `to_json`; raises BundleError for another schema or a malformed document."""
        version = document.get("schema_version") if isinstance(document, dict) else None
        if version != SCHEMA_VERSION:
            raise BundleError(
                f"the manifest has schema version {version!r}, this relaxd reads {SCHEMA_VERSION}",
                hint="install the relaxd release that built the bundle, or rebuild it",
            )
        try:
            return cls(
                **{
                    **document,
                    "inputs": tuple(TensorSpec.from_json(spec) for spec in document["inputs"]),
                    "outputs": tuple(TensorSpec.from_json(spec) for spec in document["outputs"]),
                    "dims": tuple(Dim.of(name, dim) for name, dim in document["dims"].items()),
                    "load": LoadContract(
                        **{**document["load"], "isa": tuple(document["load"]["isa"])}
                    ),
                    "weights": tuple(
                        Weight(**{**weight, "shape": tuple(weight["shape"])})
                        for weight in document.get("weights", ())
                    ),
                    "files": {
                        name: FileEntry(**entry) for name, entry in document["files"].items()
                    },
                }
            )
        except (KeyError, TypeError, AttributeError, DeclarationError) as error:
            raise BundleError(f"the manifest is malformed: {error}") from error
