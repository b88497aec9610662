"""The bundle's manifest: everything that a loader checks before it opens the library."""

from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

from relaxd.contract.bundle.adapters import Adapters
from relaxd.contract.bundle.state import State
from relaxd.contract.bundle.strings import Strings
from relaxd.contract.bundle.weights import StoredWeights
from relaxd.contract.dims.dims import Dim
from relaxd.contract.dims.names import quote_name
from relaxd.contract.dims.tensors import DTYPES, TensorSpec
from relaxd.contract.documents import (
    file_name,
    integer,
    known_keys,
    manifest_error,
    mapping,
    sequence,
    sha256,
    text,
    texts,
    words,
)
from relaxd.contract.narrow import QuantizedLayers
from relaxd.contract.options import Flavour
from relaxd.errors import BundleError, DeclarationError

SCHEMA_VERSION = 1
FILENAME = "manifest.json"
_MAX_RANK, _MAX_EXTENT = 32, 2**63 - 1
DUMP_START = "00_import.py"
"""The first file of a dump of the compiler, by which its folder is known."""
REPRODUCER_START = "reproducer.json"
"""The file of a mismatch's reproducer by which its folder is known."""

THREADS = "librelaxd_threads.so"
"""What a bundle for Linux brings to run its parallel loops; another interface of it takes another
name.
"""
HELPERS = "librelaxd_helpers.so"
"""The same for a library that needs no runtime."""
RELEASE = "release"
"""The library's function that computes nothing: the virtual machine holds the result of its last
call, so this makes it let go.
"""


@dataclass(frozen=True)
class FileEntry:
    """One file of the bundle: lower-case hex sha256 and size in bytes."""

    sha256: str
    size: int


class Weight(NamedTuple):
    """One constant of the library: raw little-endian values in C order at `offset` bytes of the
    weights file. A tuple, since a load makes hundreds, and a dataclass takes three times as long.
    """

    dtype: str
    shape: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class LoadContract:
    """Requirements on the machine; empty or None where there are none.

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
    builder: `sandbox`, how well the build was confined: `metered`, `full`, `filesystem`, `limits`
    or `none`.
    `flavour`: the backend; a `standalone` library needs no runtime, and `entry` begins the names
    of its C functions.
    alignment: bytes of which the address of every input must be a multiple; 1 where an array may
    lie wherever numpy puts it.
    state: the inputs that are caches, which a call writes; None where the library has none.
    adapters: the inputs that hold low-rank adapters; None where the library takes none.
    stored: the quantized weights; None where the build asked for none.
    left_out: why a file that serving takes, such as tokenizer.json, could not be made, by its name.
    narrow: the quantized layers; None where there are none.
    strings: the interface of steps on strings around the library; None where there are none.
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
    builder: dict[str, Any] = field(default_factory=dict)
    alignment: int = 64
    flavour: str = Flavour.VM
    state: State | None = None
    adapters: Adapters | None = None
    stored: StoredWeights | None = None
    left_out: dict[str, str] = field(default_factory=dict)
    narrow: QuantizedLayers | None = None
    strings: Strings | None = None
    schema_version: int = SCHEMA_VERSION

    def to_json(self) -> dict[str, Any]:
        """The document stored as manifest.json."""
        document = asdict(self)
        document["inputs"] = [spec.to_json() for spec in self.inputs]
        document["outputs"] = [spec.to_json() for spec in self.outputs]
        document["dims"] = {dim.name: dim.to_json() for dim in self.dims}
        document["load"]["isa"] = list(self.load.isa)
        document["weights"] = [weight._asdict() for weight in self.weights]
        for name in ("state", "adapters", "stored", "narrow", "strings"):
            part = getattr(self, name)
            document.pop(name)
            # Loaders that do not know a part refuse manifests that have it.
            document |= {} if part is None else {name: part.to_json()}
        if not self.left_out:
            document.pop("left_out")
        return document

    @classmethod
    def from_json(cls, document: Any) -> "Manifest":
        """Inverse of `to_json`; raises BundleError for another schema or a malformed document."""
        version = document.get("schema_version") if isinstance(document, dict) else None
        if type(version) is not int or version != SCHEMA_VERSION:
            raise BundleError(
                f"the manifest has schema version {str(version)[:40]}, this relaxd reads "
                f"{SCHEMA_VERSION}",
                hint="install the relaxd release that built the bundle, or rebuild it",
            )
        try:
            known_keys(document, _FIELDS[Manifest], "it")
            manifest = cls(**{**document, **_parts(document)})
        except DeclarationError as error:
            raise manifest_error(str(error)) from error
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise manifest_error(f"{type(error).__name__}: {str(error)[:200]}") from error
        _check(manifest)
        return manifest


def _parts(document: dict[str, Any]) -> dict[str, Any]:
    """The fields that are more than plain JSON, and plain ones once they are checked."""
    files = mapping(document["files"], "files")
    return {
        "name": text(document["name"], "name"),
        "inputs": _specs(document["inputs"], "inputs"),
        "outputs": _specs(document["outputs"], "outputs"),
        "dims": tuple([_dim(name, dim) for name, dim in mapping(document["dims"], "dims").items()]),
        "target": mapping(document["target"], "target"),
        "load": _load(mapping(document["load"], "load")),
        "action_key": mapping(document["action_key"], "action_key"),
        "toolchain": mapping(document["toolchain"], "toolchain"),
        "files": {file_name(name): _entry(name, entry) for name, entry in files.items()},
        "weights": _weights(document.get("weights", ())),
        "memory": mapping(document.get("memory", {}), "memory"),
        "state": None if document.get("state") is None else State.from_json(document["state"]),
        "adapters": (
            None if document.get("adapters") is None else Adapters.from_json(document["adapters"])
        ),
        "stored": (
            None if document.get("stored") is None else StoredWeights.from_json(document["stored"])
        ),
        "left_out": texts(document.get("left_out", {}), "left_out"),
        "narrow": (
            None
            if document.get("narrow") is None
            else QuantizedLayers.from_json(document["narrow"])
        ),
        "strings": (
            None if document.get("strings") is None else Strings.from_json(document["strings"])
        ),
    }


_FLAVOURS = tuple(Flavour)
_SPEC_KEYS = frozenset({"name", "dtype", "shape", "default"})
_DIM_KEYS = frozenset({"min", "max", "multiple", "opt"})
_ENTRY_KEYS = frozenset({"sha256", "size"})
_WEIGHT_KEYS = frozenset(Weight._fields)


def _specs(value: Any, what: str) -> tuple[TensorSpec, ...]:
    specs = []
    for document in sequence(value, what):
        known_keys(mapping(document, f"one of {what}"), _SPEC_KEYS, what)
        axes = sequence(document["shape"], f"a shape in {what}")
        if not all(type(axis) in (int, str) for axis in axes) or len(axes) > _MAX_RANK:
            raise manifest_error(f"a shape in {what} is not a list of up to {_MAX_RANK} axes")
        text(document["dtype"], "a dtype"), text(document["name"], f"a name in {what}")
        if not isinstance(document.get("default", 0), (int, float)):
            raise manifest_error(f"a default in {what} is not a number")
        specs.append(TensorSpec.from_json({**document, "shape": [_small(axis) for axis in axes]}))
    return tuple(specs)


def _dim(name: str, document: Any) -> Dim:
    known_keys(mapping(document, f"dim {name[:100]!r}"), _DIM_KEYS, "a dim")
    for number in document.values():
        _small(number)
    return Dim(name, **document)


def _small(value: Any) -> Any:
    """The value, unless it is a number larger than any extent."""
    if type(value) is int and abs(value) > _MAX_EXTENT:
        raise manifest_error("an extent is out of range")
    return value


def _load(document: dict[str, Any]) -> LoadContract:
    known_keys(document, _FIELDS[LoadContract], "load")
    optional = ("libc", "sm", "driver")
    plain: dict[str, Any] = {
        name: value if value is None and name in optional else text(value, f"load.{name}", 64)
        for name, value in document.items()
        if name not in ("isa", "runtime")
    }
    isa = words(document["isa"], "load.isa")
    return LoadContract(
        **plain, isa=isa, runtime=texts(document.get("runtime", {}), "load.runtime")
    )


def _entry(name: str, document: Any) -> FileEntry:
    if not isinstance(document, dict) or document.keys() != _ENTRY_KEYS:
        raise manifest_error(f"{name[:100]!r} has no entry of sha256 and size alone")
    return FileEntry(sha256(document["sha256"], name), integer(document["size"], name))


def _weights(value: Any) -> tuple[Weight, ...]:
    """There may be hundreds, so this checks them without calls."""
    weights = []
    for document in sequence(value, "weights"):
        if not isinstance(document, dict) or document.keys() != _WEIGHT_KEYS:
            raise manifest_error("a weight is not an object of dtype, shape and offset")
        dtype, shape, offset = document["dtype"], document["shape"], document["offset"]
        if dtype not in DTYPES:
            raise manifest_error(f"a weight has the unknown dtype {str(dtype)[:100]!r}")
        if not isinstance(shape, list) or len(shape) > _MAX_RANK:
            raise manifest_error(
                f"the shape of a weight is not a list of up to {_MAX_RANK} extents"
            )
        for number in (offset, *shape):
            if type(number) is not int or not 0 <= number <= _MAX_EXTENT:
                raise manifest_error("a weight has a number that is not a whole one from 0")
        weights.append(Weight(dtype, tuple(shape), offset))
    return tuple(weights)


def _check(manifest: Manifest) -> None:
    """Raises BundleError where fields contradict each other."""
    for name in ("library", "weights_file"):
        file_name(getattr(manifest, name))
    text(manifest.entry, "entry", 256)
    if manifest.flavour not in _FLAVOURS:
        raise manifest_error(
            f"the backend {manifest.flavour!r} is unknown to this version of relaxd"
        )
    integer(manifest.alignment, "alignment", 1 << 20)
    if manifest.alignment < 1 or manifest.alignment & (manifest.alignment - 1):
        raise manifest_error("alignment is not a power of two")
    for what, specs in (("inputs", manifest.inputs), ("outputs", manifest.outputs)):
        if len({spec.name for spec in specs}) < len(specs):
            raise manifest_error(f"two {what} have one name")
        if any(spec.dtype not in DTYPES for spec in specs):
            raise manifest_error(f"one of {what} has a dtype that no library computes with")
    _check_state(manifest)
    _check_adapters(manifest)
    _check_strings(manifest)


def _check_strings(manifest: Manifest) -> None:
    """Raises BundleError where steps make inputs or read outputs that the library has not."""
    if manifest.strings is None:
        return
    for names, specs in (
        (manifest.strings.encoded, manifest.inputs),
        (manifest.strings.decoded, manifest.outputs),
    ):
        if not {*names} <= {spec.name for spec in specs}:
            raise manifest_error("its steps on strings name a tensor that the library has not")


def _check_state(manifest: Manifest) -> None:
    """Raises BundleError where the state names what the library has not."""
    state = manifest.state
    if state is None:
        return
    ranks = {spec.name: len(spec.shape) for spec in manifest.inputs}
    if not state.caches or any(ranks.get(cache.input) != 4 for cache in state.caches):
        raise manifest_error("a cache must be an input of four axes")
    if not state.parts.keys() <= ranks.keys():
        raise manifest_error("the state names an input that is not there")
    names = {dim.name for dim in manifest.dims}
    if state.capacity not in names or state.rows not in {"1", *map(quote_name, names)}:
        raise manifest_error("the state names a dim that is not there")


def _check_adapters(manifest: Manifest) -> None:
    """Raises BundleError where adapters name inputs that are not there, or of other shapes."""
    adapters = manifest.adapters
    if adapters is None:
        return
    specs = {spec.name: spec for spec in manifest.inputs}
    ranks = {name: (specs[name].dtype, len(specs[name].shape)) for name in specs}
    stacks = all(ranks.get(name) == ("float32", 3) for name in adapters.inputs)
    numbers = ranks.get(adapters.index), ranks.get(adapters.ranks)
    if manifest.state is None or not stacks or numbers != (("int32", 1), ("int32", 2)):
        raise manifest_error("adapters must be inputs of a library with state")


_FIELDS: dict[type, frozenset[str]] = {
    kind: frozenset(entry.name for entry in fields(kind)) for kind in (Manifest, LoadContract)
}
