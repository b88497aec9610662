"""Multipart forms streamed to disk and on into the blob store, never whole in memory."""

import io
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import anyio.to_thread
from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from artifacts.files import check_room, storage_errors
from artifacts.store import CHUNK, BlobStore
from relaxd.contract.model_tar import START, ModelTar, is_tar, pieces_of_tar
from relaxd.contract.request import CompileRequest
from relaxd.contract.text import clean
from relaxd.errors import DeclarationError
from relaxd.http.bodies import media_type, read_limited
from relaxd.http.errors import BodyTooLarge, UnsupportedMediaType
from service.api.documents import read_request
from service.api.errors import MalformedForm
from service.api.scopes import principal_of
from service.api.wire import RequestIn
from service.core import Core
from service.settings import Settings
from service.usecases.store.holdings import draw_on
from service.usecases.store.reserving import Reservation

MODEL, REQUEST, SAMPLES = "model", "request", "samples"
LONGEST_NAME = 255

FORM_TYPE = "multipart/form-data"
FORM = {
    "schema": {
        "type": "object",
        "required": [MODEL],
        "additionalProperties": False,
        "properties": {
            MODEL: {"type": "string", "format": "binary", "description": "The model file."},
            REQUEST: {
                "allOf": [{"$ref": "#/components/schemas/RequestIn"}],
                "description": "What is declared about the model.",
            },
            SAMPLES: {
                "type": "string",
                "format": "binary",
                "description": "An .npz of inputs for verify and profile.",
            },
        },
    },
    "encoding": {REQUEST: {"contentType": "application/json"}},
}
"""The form as OpenAPI describes it."""


@dataclass(frozen=True)
class Upload:
    """A form that has been read: the model's digest and file name, and the request, which names the
    samples.
    """

    model: str
    name: str | None
    request: CompileRequest


@dataclass(frozen=True)
class Form:
    """A form that has arrived: its files, not yet in the store, and its request."""

    model: UploadFile
    samples: UploadFile | None
    request: CompileRequest
    reserved: Reservation

    def store(self, blobs: BlobStore) -> Upload:
        """Put the files into the store; to be called off the event loop. Raises StoreError, and
        DeclarationError for a tar without a model.
        """
        declared, blobs = self.request, draw_on(self.reserved, blobs)
        if self.samples:
            declared = replace(declared, samples=_store(self.samples, blobs))
        name = clean(self.model.filename or "")[:LONGEST_NAME]
        return Upload(_store_model(self.model, blobs), name or None, declared)


@asynccontextmanager
async def receive(request: Request, core: Core) -> AsyncIterator[Form]:
    """The form of a request, for as long as its files are needed, which count for the tenant's
    quota meanwhile; raises ApiError, DeclarationError, ValidationError, StoreFull.
    """
    settings = core.settings
    if media_type(request) != FORM_TYPE:
        raise UnsupportedMediaType(
            "the body is not a form", hint=f"send {FORM_TYPE}, as curl does: -F model=@model.onnx"
        )
    _check_charset(request)
    reserved = Reservation(core, principal_of(request).tenant)
    body = read_limited(
        request, settings.max_model_bytes, "raise RELAXD_MAX_MODEL_BYTES on the server"
    )
    parser = MultiPartParser(
        request.headers,
        _metered(body, reserved, settings.reserve_bytes),
        max_files=3,
        max_fields=3,
        max_part_size=settings.max_request_bytes,
    )
    try:
        form = await _parse(parser)
        try:
            model, samples, declared = await _read(dict(form.multi_items()), settings)
            yield Form(model, samples, declared, reserved)
        finally:
            await form.close()
    finally:
        await anyio.to_thread.run_sync(reserved.end)


async def _parse(parser: MultiPartParser) -> FormData:
    try:
        with storage_errors("cannot keep the upload"):
            return await parser.parse()
    except MultiPartException as error:
        raise MalformedForm(
            error.message, hint="as curl sends it: -F model=@model.onnx -F 'request={...}'"
        ) from error


async def _metered(
    body: AsyncGenerator[bytes, None], reserved: Reservation, reserve: int
) -> AsyncGenerator[bytes, None]:
    """The body, each part once there is room for it; up to a chunk stays in memory, and is counted
    when it is stored.
    """
    size, folder = 0, Path(tempfile.gettempdir())
    async for part in body:
        size += len(part)
        if size > MultiPartParser.spool_max_size:
            check_room(folder, len(part), reserve)
            if not reserved.covers(size):
                await anyio.to_thread.run_sync(reserved.cover, size)
        yield part


def _check_charset(request: Request) -> None:
    # Python knows codecs that are none of texts, raise errors of their own, or make surrogates.
    _, parameters = parse_options_header(request.headers["Content-Type"])
    charset = parameters.get(b"charset", b"utf-8").lower()
    if charset not in (b"utf-8", b"us-ascii"):
        raise MalformedForm(
            f"the form's charset is {charset.decode('latin-1')[:40]!r}", hint="send it as UTF-8"
        )


async def _read(
    parts: dict[str, UploadFile | str], settings: Settings
) -> tuple[UploadFile, UploadFile | None, CompileRequest]:
    for name in parts:
        if name not in (MODEL, REQUEST, SAMPLES):
            raise DeclarationError(
                f"unknown part {name!r}",
                field=name,
                hint=f"known parts: {MODEL}, {REQUEST}, {SAMPLES}",
            )
    model = _file(parts, MODEL)
    if model is None:
        raise DeclarationError(
            "the form has no model", field=MODEL, hint="send it as a file: -F model=@model.onnx"
        )
    text = await _text(parts.get(REQUEST), settings.max_request_bytes)
    _, declared = await read_request(RequestIn, text or b"{}", settings)
    return model, _file(parts, SAMPLES), declared


def _file(parts: dict[str, UploadFile | str], name: str) -> UploadFile | None:
    part = parts.get(name)
    if isinstance(part, str):
        raise DeclarationError(
            f"{name} is a text field, not a file",
            field=name,
            hint=f"send it as a file: -F {name}=@FILE",
        )
    if part is not None and part.size == 0:
        raise DeclarationError(f"the {name} file is empty", field=name)
    return part


async def _text(part: UploadFile | str | None, limit: int) -> bytes:
    if not isinstance(part, UploadFile):
        return (part or "").encode()
    data: bytes = await part.read(limit + 1)
    if len(data) > limit:
        raise BodyTooLarge(limit, "raise RELAXD_MAX_REQUEST_BYTES on the server")
    return data


def _store_model(upload: UploadFile, blobs: BlobStore) -> str:
    """Tars of equal files are one blob, whatever order and times they have."""
    start = upload.file.read(START)
    upload.file.seek(0)
    if not is_tar(start):
        return _store(upload, blobs)
    with io.BufferedReader(ModelTar(pieces_of_tar(upload.file, upload.file)), CHUNK) as packed:
        return blobs.put(iter(lambda: packed.read(CHUNK), b"")).digest


def _store(upload: UploadFile, blobs: BlobStore) -> str:
    small = upload.size is not None and upload.size <= CHUNK
    content = upload.file.read() if small else iter(lambda: upload.file.read(CHUNK), b"")
    return blobs.put(content).digest
