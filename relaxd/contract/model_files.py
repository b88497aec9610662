"""The files that make up one model, of a folder, of a tar or beside an ONNX file, and the document
that names them all.

A model of one file is named by the file's digest. One of several is named by the digest of an OCI
manifest whose layers are its files, in the order of their names, so that a store holds equal files
of different models once, and a client sends none that the store has.
"""

import hashlib
import io
import mmap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath
from typing import BinaryIO

from relaxd.contract import model_folder
from relaxd.contract.canonical import canonical_bytes, digest_of
from relaxd.contract.documents import file_name
from relaxd.contract.external_data import START, external_locations
from relaxd.errors import BundleError, DeclarationError

ONNX, MODEL = ".onnx", "model.onnx"
"""The name that an ONNX model of several files has among them, whatever its own."""
BESIDE = (
    "send it too: on the page choose both files, with curl -F model=@model.onnx "
    "-F model=@model.onnx.data; `relaxd compile` finds it beside the .onnx file"
)
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.empty.v1+json"
CONFIG_CONTENT = b"{}"
_TYPE, _LAYER = "application/vnd.relaxd.model.v1", "application/octet-stream"
TITLE = "org.opencontainers.image.title"
MOST_FILES = 4000
"""An OCI manifest lists 4096 at the most."""
_CHUNK = 1 << 20


class ExternalDataError(DeclarationError):
    """The data of an ONNX model is not there, or lies outside of the model's folder."""


@dataclass(frozen=True)
class Piece:
    """Bytes of a file, or of one that is open."""

    source: Path | BinaryIO
    start: int
    size: int

    @classmethod
    def of(cls, path: Path) -> "Piece":
        """A whole file; raises OSError."""
        return cls(path, 0, path.stat().st_size)

    def read(self, offset: int, count: int) -> bytes:
        """Read up to so many bytes from there, none at the end; raises OSError."""
        with self._file() as file:
            return _read(file, self, offset, count)

    def chunks(self) -> Iterator[bytes]:
        """Read all; raises OSError, also for a file that has become shorter."""
        with self._file() as file:
            offset = 0
            while offset < self.size:
                chunk = _read(file, self, offset, _CHUNK)
                offset += len(chunk)
                yield chunk

    @contextmanager
    def _file(self) -> Iterator[BinaryIO]:
        if not isinstance(self.source, Path):
            yield self.source
            return
        with self.source.open("rb") as file:
            yield file

    def locations(self) -> list[str]:
        """The files that an ONNX model of these bytes names."""
        with self._file() as file:
            file.seek(self.start)
            if file.read(len(START)) != START:
                return []
            try:
                start = self.start - self.start % mmap.ALLOCATIONGRANULARITY
                with mmap.mmap(
                    file.fileno(),
                    self.start - start + self.size,
                    access=mmap.ACCESS_READ,
                    offset=start,
                ) as data:
                    if data.find(b"location") < 0:
                        return []
                    with memoryview(data) as view, view[self.start - start :] as model:
                        return external_locations(model)
            except io.UnsupportedOperation:
                return external_locations(_read(file, self, 0, self.size))
            except ValueError as error:
                raise OSError("a file became shorter while it was read") from error


def _read(file: BinaryIO, piece: Piece, offset: int, count: int) -> bytes:
    count = min(count, piece.size - offset)
    file.seek(piece.start + offset)
    content = file.read(count)
    if count > 0 and not content:
        raise OSError("a file became shorter while it was read")
    return content


Find = Callable[[str], Piece | None]
"""The file of a name, None where there is none."""


def files_in(folder: Path) -> dict[str, Piece]:
    """The files of the model in a folder, by name in order. Raises DeclarationError, OSError."""
    names = {entry.name for entry in folder.iterdir() if entry.is_file()}
    files = choose_files(names, finder(folder))
    require_near(files)
    return files


def files_of(paths: Iterable[str | Path]) -> dict[str, Piece]:
    """The files of the model among these; raises DeclarationError, OSError."""
    return choose_sent([(path.as_posix(), Piece.of(path)) for path in map(Path, paths)])


def choose_sent(files: Sequence[tuple[str, Piece]]) -> dict[str, Piece]:
    """The files of the model among these by path: those in the folder of the highest model, and
    data that was given with another folder's path. Raises DeclarationError.
    """
    paths = [(PurePosixPath(path), piece) for path, piece in files]
    marks = [path for path, _ in paths if path.name == model_folder.CONFIG or is_onnx(path)]
    top = min(marks, key=lambda path: len(path.parts), default=PurePosixPath("x")).parent

    def find(name: str) -> Piece | None:
        pieces = [piece for path, piece in paths if path == top / name]
        pieces = pieces or [piece for path, piece in paths if f"/{path}".endswith(f"/{name}")]
        if len(pieces) > 1:
            raise _refused(f"{name!r} was given {len(pieces)} times", "give each file once")
        return pieces[0] if pieces else None

    return choose_files([path.name for path, _ in paths if path.parent == top], find)


def is_onnx(name: str | PurePath) -> bool:
    """True for the name of an ONNX model."""
    return str(name).lower().endswith(ONNX)


def finder(folder: Path) -> Find:
    """The files of a folder."""
    return lambda name: Piece.of(folder / name) if (folder / name).is_file() else None


def choose_files(names: Collection[str], find: Find) -> dict[str, Piece]:
    """The model's own files, by name in order; names: those at the top of a folder. Raises
    DeclarationError for a folder without a model, or with several, and OSError.
    """
    models = sorted(name for name in names if is_onnx(name))
    if not models or model_folder.has_weights(names):
        index, modules = (
            _content(name, names, find) for name in (model_folder.INDEX, model_folder.MODULES)
        )
        chosen = model_folder.choose_files(names, index)
        files = {name: _present(name, find) for name in chosen}
        for name in model_folder.module_files(modules) if modules is not None else ():
            if (piece := find(name)) is not None:
                files[name] = piece
        return dict(sorted(files.items()))
    if len(models) > 1:
        raise _refused(
            f"the folder has {len(models)} ONNX models: {', '.join(models[:4])}",
            "give the path of one of them, or send it with its data alone",
        )
    model = _present(models[0], find)
    return onnx_files(model, find) or {MODEL: model}


def _content(name: str, names: Collection[str], find: Find) -> bytes | None:
    """The content of a list of files, None where there is none."""
    if name not in names:
        return None
    return _present(name, find).read(0, model_folder.MOST_LIST_BYTES)


def _present(name: str, find: Find) -> Piece:
    piece = find(name)
    if piece is None:
        raise _refused(f"{name!r} is not there", "give the folder again")
    return piece


def onnx_files(model: Piece, find: Find) -> dict[str, Piece] | None:
    """An ONNX model and the files with its weights, by name in order; None where it names none.
    Raises DeclarationError for a name that leads out of the model's folder, and where a file is not
    there.
    """
    try:
        names = [checked_name(location) for location in model.locations()]
    except DeclarationError as error:
        message = f"the model's weights are elsewhere: {error.message}"
        raise ExternalDataError(message, field="model", hint=BESIDE) from error
    if len(names) > MOST_FILES:
        raise _refused(f"the model has its weights in {len(names)} files", "keep them in one")
    data = {name: _data(name, find) for name in names}
    if not data:
        return None
    if MODEL in data:
        raise _refused(f"the model keeps weights in a file {MODEL}", "export it with another name")
    files = {MODEL: model, **data}
    check_names(files)
    return dict(sorted(files.items()))


def _data(name: str, find: Find) -> Piece:
    piece = find(name)
    if piece is None:
        message = f"the weights are in {name!r}, which is not in the model's folder"
        raise ExternalDataError(message, field="model", hint=BESIDE)
    return piece


def require_near(files: Mapping[str, Piece]) -> None:
    """Raise ExternalDataError where a link leads to the data of an ONNX model elsewhere than the
    model lies; in the caches of Hugging Face's libraries links lead to both.
    """
    model = files.get(MODEL)
    if model is None or not isinstance(model.source, Path):
        return
    homes = [path.parent.resolve() for path in (model.source, model.source.resolve())]
    for name, piece in files.items():
        if not any(Path(str(piece.source)).resolve().is_relative_to(home) for home in homes):
            message = f"{name!r} is a link out of the model's folder"
            raise ExternalDataError(message, field="model", hint="copy the file into the folder")


def checked_name(name: str) -> str:
    """The name of a model's file as it is kept; raises DeclarationError for one that leads out of
    the model's folder or that file systems do not take.
    """
    while name.startswith("./"):
        name = name[2:].lstrip("/")
    try:
        if name:
            return file_name(name)
    except BundleError as error:
        if ".." in name.split("/") or name.startswith("/"):
            raise _refused(f"{name[:100]!r} leads out of the model's folder", BESIDE) from error
    raise _refused(f"{name[:100]!r} is not a valid name of a model's file", "rename the file")


def check_names(names: Collection[str]) -> None:
    """Raise DeclarationError where a file has the name of another's folder."""
    for name in names:
        parts = name.split("/")
        for count in range(1, len(parts)):
            if "/".join(parts[:count]) in names:
                raise _refused(f"{name[:100]!r} lies in a file", "pack the model again")


def manifest_of(files: Mapping[str, tuple[str, int]]) -> bytes:
    """The document that names a model of several files; files: digest and size, by name."""
    layers = [
        {"mediaType": _LAYER, "digest": digest, "size": size, "annotations": {TITLE: name}}
        for name, (digest, size) in sorted(files.items())
    ]
    config = {
        "mediaType": _CONFIG,
        "digest": digest_of(CONFIG_CONTENT),
        "size": len(CONFIG_CONTENT),
    }
    return canonical_bytes(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "artifactType": _TYPE,
            "config": config,
            "layers": layers,
        }
    )


def digest_of_files(files: Mapping[str, tuple[str, int]]) -> str:
    """The digest that names the model of these files, by digest and size."""
    if len(files) == 1:
        return next(iter(files.values()))[0]
    return digest_of(manifest_of(files))


def digest_of_piece(piece: Piece) -> str:
    """The digest of the bytes; raises OSError."""
    digest = hashlib.sha256()
    for chunk in piece.chunks():
        digest.update(chunk)
    return f"sha256:{digest.hexdigest()}"


def _refused(message: str, hint: str) -> DeclarationError:
    return DeclarationError(message, field="model", hint=hint)
