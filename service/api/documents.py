"""Request documents: bounded before they are parsed; all but small ones off the event loop."""

from typing import TypeVar

from starlette.requests import Request

from relaxd.contract.request import CompileRequest
from relaxd.errors import DeclarationError
from relaxd.http.bodies import JSON_TYPE, check_json, count_values, read_limited
from service.api.tenant_threads import HEAVY, WIDTH, run_in_thread
from service.api.wire import JobIn, RequestIn
from service.settings import Settings

JOB_CONTENT = {JSON_TYPE: {"schema": {"$ref": "#/components/schemas/JobIn"}}}
"""What `read_job` reads, as OpenAPI describes it."""
SMALL = 4096
"""Bytes of a document that is parsed in less time than it takes to hand it to a thread."""
FEW = 100
"""Declarations that are worked through in as little time."""

Document = TypeVar("Document", bound=RequestIn)


async def read_job(request: Request, settings: Settings) -> tuple[str, CompileRequest]:
    """The digest of the model and the request of a JobIn document; raises ApiError,
    DeclarationError, ValidationError.
    """
    check_json(request)
    hint = "raise RELAXD_MAX_REQUEST_BYTES on the server"
    body = read_limited(request, settings.max_request_bytes, hint)
    data = b"".join([chunk async for chunk in body])
    document, declared = await read_request(JobIn, data, settings)
    return document.model, declared


async def read_request(
    kind: type[Document], data: bytes, settings: Settings
) -> tuple[Document, CompileRequest]:
    """The document and the request that it declares; raises DeclarationError, ValidationError."""
    if len(data) <= SMALL:
        return _parse(kind, data, settings)
    return await run_in_thread(_parse, kind, data, settings, width=HEAVY)


def width_of(request: CompileRequest) -> int:
    """How many threads of a tenant may do at a time what takes long for a request of that size."""
    declared = (request.dims, request.inputs or (), request.consts, request.shapes)
    return WIDTH if sum(map(len, declared)) <= FEW else HEAVY


def _parse(
    kind: type[Document], data: bytes, settings: Settings
) -> tuple[Document, CompileRequest]:
    # A value costs up to a hundred times its bytes once it is parsed and found wrong. Those inside
    # texts may be axes.
    values = count_values(data)
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
