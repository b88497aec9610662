"""Uploads blobs that the service lacks, in chunks that survive a lost connection."""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import httpx

from relaxd.client.transport import ATTEMPTS, Transport
from relaxd.contract.canonical import digest_of, is_digest
from relaxd.contract.model_files import (
    CONFIG_CONTENT,
    Piece,
    digest_of_files,
    digest_of_piece,
    files_of,
    is_onnx,
    manifest_of,
)
from relaxd.contract.model_folder import model_name
from relaxd.contract.model_tar import files_at
from relaxd.errors import DeclarationError, ServerUnreachable

CHUNK = 8 << 20
CHECKED = 8 << 20
"""Bytes a second that even a busy service copies and checks at the end of an upload."""
Report = Callable[[int, int], None]
MODELS = "models"
"""The repository of models, in the namespace of one's tenant."""


@runtime_checkable
class Serializable(Protocol):
    """The one method of `onnx.ModelProto` that an upload needs."""

    def SerializeToString(self) -> bytes:  # noqa: N802
        """The bytes of the model."""
        ...


Model = str | Path | bytes | Serializable | Sequence[str | Path]
"""A path, of an ONNX model also those of the model and its data, bytes, or a digest."""
Samples = str | Path | bytes | Mapping[str, Any]


def name_of(model: Model) -> str | None:
    """The name of the file or folder, None where there is neither."""
    if isinstance(model, Sequence) and not isinstance(model, (str, bytes)):
        return next((Path(path).name for path in model if is_onnx(path)), None)
    if not isinstance(model, (str, Path)) or _digest(model):
        return None
    return model_name(Path(model)) if Path(model).is_dir() else Path(model).name


def upload_model(transport: Transport, model: Model, report: Report | None = None) -> str:
    """The digest of a path, of several, of bytes, of a ModelProto, or the digest given; of a model
    of several files, those that the service lacks are sent. Raises DeclarationError for a missing
    file. `report` gets the bytes sent and the bytes in all.
    """
    if isinstance(model, Serializable):
        model = model.SerializeToString()
    if isinstance(model, bytes):
        return _upload(transport, {"model": _in_memory(model)}, report)
    if isinstance(model, str) and _digest(model):
        return model
    return _upload(transport, read_files(model), report)


def read_files(model: str | Path | Sequence[str | Path]) -> dict[str, Piece]:
    """The files of a model by their names in it; raises DeclarationError."""
    try:
        return files_at(Path(model)) if isinstance(model, (str, Path)) else files_of(model)
    except OSError as error:
        raise DeclarationError(
            f"cannot read {error.filename or model}: {error.strerror or error}",
            field="model",
            hint="give the path of a file",
        ) from error


def _in_memory(data: bytes) -> Piece:
    return Piece(io.BytesIO(data), 0, len(data))


def upload_samples(transport: Transport, samples: Samples) -> str:
    """The digest of an .npz: a path, its bytes, its digest, or a mapping of input names
    to arrays.
    """
    if isinstance(samples, Mapping):
        # The API's image has the commands that ask a service, and no numpy.
        import numpy as np

        packed = io.BytesIO()
        arrays: dict[str, Any] = {name: np.asarray(value) for name, value in samples.items()}
        np.savez(packed, **arrays)
        samples = packed.getvalue()
    if isinstance(samples, bytes):
        return _upload(transport, {"samples": _in_memory(samples)})
    if isinstance(samples, str) and _digest(samples):
        return samples
    try:
        return _upload(transport, {"samples": Piece.of(Path(samples))})
    except OSError as error:
        raise DeclarationError(
            f"cannot read {samples}: {error.strerror}",
            field="samples",
            hint="give the path of a file",
        ) from error


def _digest(source: Any) -> bool:
    return isinstance(source, str) and is_digest(source)


def _upload(transport: Transport, files: Mapping[str, Piece], report: Report | None = None) -> str:
    """The digest that names the files, once the service has them and, of several, their
    manifest.
    """
    named = {name: (digest_of_piece(piece), piece.size) for name, piece in files.items()}
    pieces = {named[name][0]: piece for name, piece in files.items()}
    if len(files) > 1:
        for content in (CONFIG_CONTENT, manifest_of(named)):
            pieces[digest_of(content)] = _in_memory(content)
    blobs = f"/v2/{transport.repository(MODELS)}/blobs"
    missing = {
        digest: piece
        for digest, piece in pieces.items()
        if transport.request("HEAD", f"{blobs}/{digest}", accept=frozenset({404})).status_code
        == 404
    }
    total, done = sum(piece.size for piece in missing.values()), 0
    tell = report or (lambda sent, total: None)
    for digest, piece in missing.items():
        _send(transport, piece, digest, lambda sent, before=done: tell(before + sent, total))  # type: ignore[misc]
        done += piece.size
    return digest_of_files(named)


def _send(transport: Transport, piece: Piece, digest: str, report: Callable[[int], None]) -> None:
    path = f"/v2/{transport.repository(MODELS)}/blobs/uploads/"
    location = transport.request("POST", path).headers["Location"]
    offset, failures = 0, 0
    while offset < piece.size:
        chunk = piece.read(offset, CHUNK)
        try:
            headers = {
                "Content-Type": "application/octet-stream",
                "Content-Range": f"{offset}-{offset + len(chunk) - 1}",
            }
            answer = transport.request(
                "PATCH", location, content=chunk, headers=headers, accept=frozenset({416})
            )
            interrupted = answer.status_code == 416
        except ServerUnreachable:
            answer, interrupted = transport.request("GET", location), True
        failures += interrupted
        if failures == ATTEMPTS:
            raise ServerUnreachable(
                f"the upload to {transport.url} broke off {ATTEMPTS} times",
                hint="check the network, then try again",
            )
        offset = _received(answer) if interrupted else offset + len(chunk)
        location = answer.headers.get("Location", location)
        report(offset)
    transport.request(
        "PUT",
        str(httpx.URL(location).copy_merge_params({"digest": digest})),
        timeout=transport.timeout + piece.size / CHECKED,
    )


def _received(answer: httpx.Response) -> int:
    """How many bytes of an upload the service holds: `Range: 0-N` names the last one."""
    match = re.fullmatch(r"(?:bytes=)?0-(\d+)", answer.headers.get("Range", ""))
    return int(match[1]) + 1 if match and int(match[1]) else 0
