"""Request documents: bounded before they are parsed; all but small ones off the event loop."""

from typing import TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from relaxd.contract.request import CompileRequest
from relaxd.errors import DeclarationError
from service.api.bodies import read_limited
from service.api.errors import UnsupportedMediaType
from service.api.wire import JobIn, RequestIn
from service.settings import Settings

JSON_TYPE = "application/json"
JOB_CONTENT = {JSON_TYPE: {"schema": {"$ref": "#/components/schemas/JobIn"}}}
"""What `read_job` reads, as OpenAPI describes it."""
SMALL = 4096
"""Bytes of a document that is parsed in less time than it takes to hand it to a thread."""
SEPARATORS = (b",", b":", b"[", b"{")

Document = TypeVar("Document", bound=RequestIn)


async def read_job(request: Request, settings: Settings) -> tuple[str, CompileRequest]:
    """The digest of the model and the request of a JobIn document; raises ApiError,
    DeclarationError, ValidationError.
    """
    kind = media_type(request)
    if kind != JSON_TYPE:
        raise UnsupportedMediaType(
            f"the body is {kind or 'of no declared type'}", hint=f"send {JSON_TYPE}"
        )
    body = read_limited(request, settings.max_request_bytes, "RELAXD_MAX_REQUEST_BYTES")
    data = b"".join([chunk async for chunk in body])
    document, declared = await read_request(JobIn, data, settings)
    return document.model, declared


async def read_request(
    kind: type[Document], data: bytes, settings: Settings
) -> tuple[Document, CompileRequest]:
    """The document and the request that it declares; raises DeclarationError, ValidationError."""
    if len(data) <= SMALL:
        return _parse(kind, data, settings)
    return await run_in_threadpool(_parse, kind, data, settings)


def media_type(request: Request) -> str:
    """The Content-Type without its parameters, in lower case."""
    return request.headers.get("Content-Type", "").partition(";")[0].strip().lower()


def _parse(
    kind: type[Document], data: bytes, settings: Settings
) -> tuple[Document, CompileRequest]:
    # A value costs up to a hundred times its bytes once it is parsed and found wrong. Every value
    # but the first follows a separator, and those inside texts count too: they may be axes.
    values = sum(map(data.count, SEPARATORS))
    if values > settings.max_request_values:
        raise DeclarationError(
            f"the request has {values} values, the limit is {settings.max_request_values}",
            field="request",
            hint="declare less, or raise RELAXD_MAX_REQUEST_VALUES on the server",
        )
    document = kind.model_validate_json(data)
    if len(document.targets) > settings.max_targets:
        raise DeclarationError(
            f"the request names {len(document.targets)} targets, the limit is "
            f"{settings.max_targets}",
            field="targets",
            hint="send several requests, or raise RELAXD_MAX_TARGETS on the server",
        )
    return document, document.request()
