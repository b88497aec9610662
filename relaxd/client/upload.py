"""Uploads blobs that the service lacks, in chunks that survive a lost connection."""

import hashlib
import io
import re
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol, runtime_checkable

import httpx

from relaxd.client.transport import ATTEMPTS, Transport
from relaxd.contract.canonical import is_digest
from relaxd.contract.model_folder import model_name
from relaxd.contract.model_tar import (
    START,
    ModelTar,
    Piece,
    is_tar,
    pieces_of_folder,
    pieces_of_tar,
)
from relaxd.errors import DeclarationError, ServerUnreachable

CHUNK = 8 << 20
Report = Callable[[int, int], None]
MODELS = "models"
"""The repository of models, in the namespace of one's tenant."""


@runtime_checkable
class Serializable(Protocol):
    """The one method of `onnx.ModelProto` that an upload needs."""

    def SerializeToString(self) -> bytes:  # noqa: N802
        """The bytes of the model."""
        ...


Model = str | Path | bytes | Serializable
Samples = str | Path | bytes | Mapping[str, Any]


def name_of(model: Model) -> str | None:
    """The name of the file or folder, None where there is neither."""
    if not isinstance(model, (str, Path)) or _digest(model):
        return None
    return model_name(Path(model)) if Path(model).is_dir() else Path(model).name


def upload_model(transport: Transport, model: Model, report: Report | None = None) -> str:
    """The digest of a path, of bytes, of a ModelProto, or the digest given; a folder is sent as the
    tar of its model. Raises DeclarationError for a missing file. `report` gets the bytes sent and
    the bytes in all.
    """
    if isinstance(model, Serializable):
        model = model.SerializeToString()
    return _upload(transport, model, field="model", report=report)


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
    return _upload(transport, samples, field="samples")


def _digest(source: Any) -> bool:
    return isinstance(source, str) and is_digest(source)


def _upload(
    transport: Transport, source: str | Path | bytes, *, field: str, report: Report | None = None
) -> str:
    if isinstance(source, str) and _digest(source):
        return source
    with _opened(source, field) as file:
        hasher = hashlib.file_digest(file, "sha256")
        size = file.seek(0, io.SEEK_END)
        digest = f"sha256:{hasher.hexdigest()}"
        known = transport.request(
            "HEAD", f"/v2/{transport.repository(MODELS)}/blobs/{digest}", accept=frozenset({404})
        )
        if known.status_code == 404:
            _send(transport, file, size, digest, report or (lambda done, total: None))
    return digest


@contextmanager
def _opened(source: str | Path | bytes, field: str) -> Any:
    if isinstance(source, bytes):
        yield io.BytesIO(source)
        return
    if Path(source).is_dir():
        with _packed(pieces_of_folder(Path(source))) as packed:
            yield packed
        return
    try:
        file = open(source, "rb")  # noqa: SIM115
    except OSError as error:
        raise DeclarationError(
            f"cannot read {source}: {error.strerror}", field=field, hint="give the path of a file"
        ) from error
    with file:
        of_folder = field == "model" and is_tar(file.read(START))
        file.seek(0)
        if not of_folder:
            yield file
            return
        with _packed(pieces_of_tar(file, file)) as packed:
            yield packed


def _packed(pieces: Mapping[str, Piece]) -> io.BufferedReader:
    return io.BufferedReader(ModelTar(pieces), CHUNK)


def _send(transport: Transport, file: BinaryIO, size: int, digest: str, report: Report) -> None:
    path = f"/v2/{transport.repository(MODELS)}/blobs/uploads/"
    location = transport.request("POST", path).headers["Location"]
    offset, failures = 0, 0
    while offset < size:
        file.seek(offset)
        chunk = file.read(CHUNK)
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
        report(offset, size)
    transport.request("PUT", str(httpx.URL(location).copy_merge_params({"digest": digest})))


def _received(answer: httpx.Response) -> int:
    """How many bytes of an upload the service holds: `Range: 0-N` names the last one."""
    match = re.fullmatch(r"(?:bytes=)?0-(\d+)", answer.headers.get("Range", ""))
    return int(match[1]) + 1 if match and int(match[1]) else 0
