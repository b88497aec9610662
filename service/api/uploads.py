"""Multipart forms streamed to disk and on into the blob store, never whole in memory."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass

import anyio.to_thread
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from artifacts.store import CHUNK, BlobStore
from relaxd.errors import DeclarationError
from service.api.errors import BodyTooLarge, MalformedForm, UnsupportedMediaType
from service.api.wire import RequestIn

MODEL, REQUEST, SAMPLES = "model", "request", "samples"
MAX_REQUEST = 1 << 20

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
    """A form that has been read: digests of its files, the model's file name, and the request as it
    stands in the form.
    """

    model: str
    name: str | None
    request: RequestIn


async def read_upload(request: Request, blobs: BlobStore, limit: int) -> Upload:
    """Store the form's files and read its request; raises ApiError, DeclarationError,
    ValidationError.
    """
    if not request.headers.get("Content-Type", "").lower().startswith(FORM_TYPE):
        raise UnsupportedMediaType(
            "the body is not a form", hint=f"send {FORM_TYPE}, as curl does: -F model=@model.onnx"
        )
    parser = MultiPartParser(
        request.headers,
        limited(request, limit),
        max_files=3,
        max_fields=3,
        max_part_size=MAX_REQUEST,
    )
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise MalformedForm(
            error.message, hint="as curl sends it: -F model=@model.onnx -F 'request={...}'"
        ) from error
    try:
        return await _read(dict(form.multi_items()), blobs)
    finally:
        await form.close()


async def limited(request: Request, limit: int) -> AsyncGenerator[bytes, None]:
    """The body as it comes; raises BodyTooLarge, before anything is read if the length is
    announced.
    """
    length = request.headers.get("Content-Length", "")
    if length.isdigit() and int(length) > limit:
        raise BodyTooLarge(limit)
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise BodyTooLarge(limit)
        yield chunk


async def _read(parts: dict[str, UploadFile | str], blobs: BlobStore) -> Upload:
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
    declared = RequestIn.model_validate_json(await _text(parts.get(REQUEST)) or "{}")
    samples = _file(parts, SAMPLES)
    if samples:
        declared = declared.model_copy(update={"samples": await _store(samples, blobs)})
    return Upload(await _store(model, blobs), model.filename or None, declared)


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


async def _text(part: UploadFile | str | None) -> str | bytes | None:
    return await part.read(MAX_REQUEST) if isinstance(part, UploadFile) else part


async def _store(upload: UploadFile, blobs: BlobStore) -> str:
    blob = await anyio.to_thread.run_sync(
        lambda: blobs.put(iter(lambda: upload.file.read(CHUNK), b""))
    )
    return blob.digest
