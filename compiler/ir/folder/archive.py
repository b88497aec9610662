"""The files of a folder, of a tar that nobody has vouched for, or of an ONNX model and its data,
mapped into memory.
"""

import gzip
import hashlib
import mmap
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from compiler.errors import LoadError
from compiler.ir.decoders.quantized import Array
from relaxd.contract.model_files import MODEL, ExternalDataError, Piece, digest_of_files
from relaxd.contract.model_tar import START, files_at, is_tar, pieces_of_tar
from relaxd.errors import DeclarationError

MOST_BYTES = 64 << 30
_GZIP = b"\x1f\x8b"
_OTHERS = {b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz"}
_PIECE = 1 << 20
_READERS = 2


@dataclass(frozen=True)
class Files:
    """The model's own files by name, as bytes; digest: what names the model, whatever order and
    times they came in; onnx: the file of an ONNX model whose data lies beside it, for other
    programs to read.
    """

    arrays: Mapping[str, Array]
    digest: str
    onnx: Path | None = None


def is_folder(path: Path) -> bool:
    """True for a folder or a tar, packed or not."""
    if path.is_dir():
        return True
    try:
        with path.open("rb") as file:
            start = file.read(START)
    except OSError:
        return False
    return is_tar(start) or start.startswith((_GZIP, *_OTHERS))


def read_files(path: Path) -> Files:
    """Read the files of a model in a folder or a tar, or in a file and beside it; raises LoadError
    for a tar that is malformed or names paths outside of it, and for what holds no model.
    """
    packed = path.is_file() and is_folder(path)
    try:
        pieces = {} if packed else files_at(path)
        arrays = _of_tar(path) if packed else _mapped(pieces)
    except DeclarationError as error:
        reason = "external_data" if isinstance(error, ExternalDataError) else "folder"
        raise LoadError(error.message, reason=reason, field="model", hint=error.hint) from error
    except OSError as error:
        message = f"the model cannot be read: {error.strerror or error}"
        raise LoadError(message, reason="unreadable", field="model") from error
    with ThreadPoolExecutor(_READERS) as readers:
        digests = readers.map(_digest_of, arrays.values())
        parts = zip(arrays, digests, strict=True)
        sizes = {name: (digest, len(arrays[name])) for name, digest in parts}
    return Files(arrays, digest_of_files(sizes), _own_file(pieces))


def _digest_of(array: Array) -> str:
    digest = hashlib.sha256(array.data).hexdigest()
    release_pages(array)
    return f"sha256:{digest}"


def release_pages(array: Array) -> None:
    """Give back the memory of what was read of a mapped file, which counts as the process's."""
    if isinstance(mapped := getattr(array, "_mmap", None), mmap.mmap):
        mapped.madvise(mmap.MADV_DONTNEED)


def _own_file(pieces: Mapping[str, Piece]) -> Path | None:
    paths = {name: piece.source for name, piece in pieces.items() if isinstance(piece.source, Path)}
    linked = len(paths) > 1 and any(path.is_symlink() for path in paths.values())
    return None if linked or not paths else paths.get(MODEL, next(iter(paths.values())))


def _mapped(files: Mapping[str, Piece]) -> dict[str, Array]:
    return {
        name: np.memmap(piece.source, np.uint8, mode="r") if piece.size else np.zeros(0, np.uint8)
        for name, piece in files.items()
    }


def _of_tar(path: Path) -> dict[str, Array]:
    with path.open("rb") as file, _unpacked(file) as plain:
        pieces = pieces_of_tar(plain, plain)
        data = np.memmap(plain, np.uint8, mode="r")  # type: ignore[call-overload]
    return {name: data[one.start : one.start + one.size] for name, one in pieces.items()}


@contextmanager
def _unpacked(file: BinaryIO) -> Iterator[BinaryIO]:
    """The tar itself: the file, or a nameless one."""
    start = file.read(8)
    file.seek(0)
    for magic, name in _OTHERS.items():
        if start.startswith(magic):
            raise _refused(
                f"tars packed with {name} are not read", "send a plain tar, or one packed with gzip"
            )
    if not start.startswith(_GZIP):
        yield file
        return
    with tempfile.TemporaryFile(prefix="relaxd-tar-") as plain:
        _unpack(file, plain)
        yield plain


def _unpack(file: BinaryIO, plain: BinaryIO) -> None:
    size = 0
    try:
        with gzip.open(file) as packed:
            while piece := packed.read(_PIECE):
                size += len(piece)
                if size > MOST_BYTES:
                    raise _refused(f"the tar unpacks to more than {MOST_BYTES} bytes")
                plain.write(piece)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _refused(f"the packed tar is malformed: {error}", "pack it again") from error
    if not size:
        raise _refused("the packed tar is empty", "pack it again")
    plain.flush()
    plain.seek(0)


def _refused(message: str, hint: str | None = None) -> LoadError:
    return LoadError(message, reason="folder", field="model", hint=hint)
