"""The files of a folder, or of a tar that nobody has vouched for, mapped into memory."""

import gzip
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from compiler.errors import LoadError
from compiler.ir.decoders.quantized import Array
from relaxd.contract import model_folder
from relaxd.contract.model_tar import START, is_tar, pieces_of_tar
from relaxd.errors import DeclarationError

MOST_BYTES = 64 << 30
_GZIP = b"\x1f\x8b"
_OTHERS = {b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz"}
_PIECE = 1 << 20


@dataclass(frozen=True)
class Files:
    """The model's own files by name, as bytes; digest: of their canonical tar, whatever order and
    times they came in.
    """

    arrays: Mapping[str, Array]
    digest: str


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
    """Read the files; raises LoadError for a tar that is malformed or names paths outside of it,
    and for what holds no model.
    """
    try:
        arrays = _of_folder(path) if path.is_dir() else _of_tar(path)
    except DeclarationError as error:
        raise _refused(error.message, error.hint) from error
    except OSError as error:
        raise _refused(f"the folder cannot be read: {error.strerror or error}") from error
    sizes = {name: len(array) for name, array in arrays.items()}
    digest = model_folder.digest_of(sizes, lambda name: _pieces(arrays[name]))
    return Files(arrays, f"sha256:{digest.hex()}")


def _pieces(array: Array) -> Iterator[bytes]:
    for start in range(0, len(array), _PIECE):
        yield array[start : start + _PIECE].tobytes()


def _of_folder(folder: Path) -> dict[str, Array]:
    return {
        name: np.memmap(path, np.uint8, mode="r") if path.stat().st_size else np.zeros(0, np.uint8)
        for name, path in model_folder.files_of(folder).items()
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
