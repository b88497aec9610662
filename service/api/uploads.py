"""Multipart forms streamed to disk and on into the blob store, never whole in memory."""

import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from artifacts.files import check_room, storage_errors
from artifacts.models import put_model
from artifacts.store import CHUNK, Blob, BlobStore
from relaxd.contract.model_files import (
    MODEL,
    Piece,
    checked_name,
    choose_sent,
    is_onnx,
    onnx_files,
)
from relaxd.contract.model_tar import START, is_tar, pieces_of_tar
from relaxd.contract.request import CompileRequest
from relaxd.contract.text import clean
from relaxd.errors import DeclarationError
from relaxd.http.bodies import media_type, read_limited
from relaxd.http.errors import BodyTooLarge, UnsupportedMediaType
from service.api.documents import read_request, width_of
from service.api.errors import MalformedForm
from service.api.scopes import principal_of
from service.api.tenant_threads import run_in_thread, width_for
from service.api.wire import RequestIn
from service.core import Core
from service.settings import Settings
from service.usecases.store.holdings import Unheld, draw_on
from service.usecases.store.reserving import Reservation

MODEL_PART, REQUEST, SAMPLES = "model", "request", "samples"
LONGEST_NAME = 255
MOST_FILES = 256
"""Of one form; a tar takes more."""

FORM_TYPE = "multipart/form-data"
FORM = {
    "schema": {
        "type": "object",
        "required": [MODEL_PART],
        "additionalProperties": False,
        "properties": {
            MODEL_PART: {
                "type": "array",
                "items": {"type": "string", "format": "binary"},
                "description": "The model's file; an ONNX model and the files of its data, each in "
                "a part of its own; or one tar of them or of a folder.",
            },
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

    model: Sequence[UploadFile]
    samples: UploadFile | None
    request: CompileRequest
    reserved: Reservation

    @property
    def width(self) -> int:
        """How many threads of a tenant may store such forms at a time."""
        files = [*self.model, *([self.samples] if self.samples else [])]
        return min(width_for(sum(file.size or 0 for file in files)), width_of(self.request))

    def store(self, blobs: BlobStore, unheld: Unheld | None = None) -> Upload:
        """Put the files into the store, to be held at once or with `unheld`; to be called off the
        event loop. Raises StoreError, and DeclarationError for files or a tar without a model.
        """
        declared, blobs = self.request, draw_on(self.reserved, blobs, unheld)
        if self.samples:
            declared = replace(declared, samples=_store(_piece(self.samples), blobs).digest)
        names = [upload.filename or "" for upload in self.model]
        named = next(filter(is_onnx, names), names[0]).rpartition("/")[2]
        name = clean(named)[:LONGEST_NAME]
        return Upload(_store_model(self.model, blobs), name or None, declared)


class _Parser(MultiPartParser):
    """Keeps MOST_FILES small files in some 16 MiB of memory."""

    spool_max_size = 64 << 10


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
    parser = _Parser(
        request.headers,
        _metered(body, reserved, settings.reserve_bytes),
        max_files=MOST_FILES,
        max_fields=3,
        max_part_size=settings.max_request_bytes,
    )
    try:
        form = await _parse(parser)
        try:
            model, samples, declared = await _read(form, settings)
            yield Form(model, samples, declared, reserved)
        finally:
            await form.close()
    finally:
        if reserved.is_begun:
            await run_in_thread(reserved.end)


async def _parse(parser: MultiPartParser) -> FormData:
    try:
        with storage_errors("cannot keep the upload"):
            return await parser.parse()
    except MultiPartException as error:
        raise MalformedForm(
            error.message,
            hint="as curl sends it: -F model=@model.onnx -F 'request={...}'; of more than "
            f"{MOST_FILES} files send one tar",
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
        if size > _Parser.spool_max_size:
            check_room(folder, len(part), reserve)
            if not reserved.covers(size):
                await run_in_thread(reserved.cover, size)
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
    form: FormData, settings: Settings
) -> tuple[list[UploadFile], UploadFile | None, CompileRequest]:
    for name in form:
        if name not in (MODEL_PART, REQUEST, SAMPLES):
            raise DeclarationError(
                f"unknown part {name!r}",
                field=name,
                hint=f"known parts: {MODEL_PART}, {REQUEST}, {SAMPLES}",
            )
    models = [_file(part, MODEL_PART) for part in form.getlist(MODEL_PART)]
    if not models:
        raise DeclarationError(
            "the form has no model",
            field=MODEL_PART,
            hint="send it as a file: -F model=@model.onnx, and its data as another one: "
            "-F model=@model.onnx.data",
        )
    samples = _file(form[SAMPLES], SAMPLES) if SAMPLES in form else None
    if len(models) == 1:
        _require_content(models[0], MODEL_PART)
    if samples is not None:
        _require_content(samples, SAMPLES)
    text = await _text(form.get(REQUEST), settings.max_request_bytes)
    _, declared = await read_request(RequestIn, text or b"{}", settings)
    return models, samples, declared


def _file(part: UploadFile | str, name: str) -> UploadFile:
    if isinstance(part, str):
        raise DeclarationError(
            f"{name} is a text field, not a file",
            field=name,
            hint=f"send it as a file: -F {name}=@FILE",
        )
    return part


def _require_content(part: UploadFile, name: str) -> None:
    if part.size == 0:
        raise DeclarationError(f"the {name} file is empty", field=name)


async def _text(part: UploadFile | str | None, limit: int) -> bytes:
    if not isinstance(part, UploadFile):
        return (part or "").encode()
    data: bytes = await part.read(limit + 1)
    if len(data) > limit:
        raise BodyTooLarge(limit, "raise RELAXD_MAX_REQUEST_BYTES on the server")
    return data


def _store_model(uploads: Sequence[UploadFile], blobs: BlobStore) -> str:
    """Equal files are one blob, and models of equal files one model, however they were sent."""
    files = _files(uploads)
    return put_model(blobs, {name: _store(piece, blobs) for name, piece in files.items()})


def _files(uploads: Sequence[UploadFile]) -> Mapping[str, Piece]:
    """The model's own files, by name; raises DeclarationError."""
    file = uploads[0].file
    start = file.read(START)
    file.seek(0)
    if len(uploads) > 1:
        return choose_sent([(checked_name(one.filename or ""), _piece(one)) for one in uploads])
    if is_tar(start):
        return pieces_of_tar(file, file)
    return onnx_files(_piece(uploads[0]), lambda name: None) or {MODEL: _piece(uploads[0])}


def _piece(upload: UploadFile) -> Piece:
    return Piece(upload.file, 0, upload.size or 0)


def _store(piece: Piece, blobs: BlobStore) -> Blob:
    return blobs.put(piece.read(0, CHUNK) if piece.size <= CHUNK else piece.chunks())
