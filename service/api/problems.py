"""Errors as RFC 9457 problem documents, by one table from errors to statuses and titles."""

import math
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from artifacts.errors import (
    BlobCorrupt,
    BlobNotFound,
    DigestMismatch,
    InvalidDigest,
    InvalidManifest,
    NoDump,
    StorageFailed,
    StoreError,
    StoreFull,
    UnknownAction,
)
from compiler.errors import CompileError, UnknownTarget
from relaxd.contract.failures import Failure
from relaxd.errors import BundleError, DeclarationError, RelaxdError
from relaxd.http.errors import (
    TYPE_PREFIX,
    ApiError,
    BodyTooLarge,
    ForeignOrigin,
    HeaderTooLarge,
    Unauthorized,
    UnknownHost,
    UnsupportedMediaType,
)
from service.api.errors import Forbidden, MalformedForm, TooManyRequests
from service.errors import (
    ChoreTaken,
    DatabaseDamaged,
    DatabaseUnavailable,
    IdempotencyConflict,
    InspectionFailed,
    NotFinished,
    NothingBuilt,
    NoWorker,
    OpenService,
    QueueFull,
    RegistryFull,
    ServiceError,
    SignInRefused,
    SignInUnavailable,
    TargetNotServed,
    TenantBusy,
    TenantExists,
    TenantKept,
    TooManyUploads,
    TooManyWebhooks,
    UnknownBlob,
    UnknownIssuer,
    UnknownJob,
    UnknownPin,
    UnknownRegistered,
    UnknownTenant,
    UnknownToken,
    UnknownWebhook,
    VersionInUse,
)

RETRY_AFTER_S = 2
"""What is away mostly restarts."""


@dataclass(frozen=True)
class Kind:
    """The HTTP form of one class of errors; `retryable` when the same request may
    succeed later.
    """

    status: HTTPStatus
    title: str
    retryable: bool = False


INTERNAL = Kind(HTTPStatus.INTERNAL_SERVER_ERROR, "The service failed")

KINDS: tuple[tuple[type[Exception], Kind], ...] = (
    (DeclarationError, Kind(HTTPStatus.UNPROCESSABLE_ENTITY, "The request is not valid")),
    (UnknownTarget, Kind(HTTPStatus.UNPROCESSABLE_ENTITY, "There is no such target")),
    (InspectionFailed, Kind(HTTPStatus.UNPROCESSABLE_ENTITY, "The model cannot be inspected")),
    (CompileError, Kind(HTTPStatus.UNPROCESSABLE_ENTITY, "The model cannot be compiled")),
    (UnknownJob, Kind(HTTPStatus.NOT_FOUND, "There is no such job")),
    (
        UnknownBlob,
        Kind(HTTPStatus.UNPROCESSABLE_ENTITY, "The store does not hold what the request names"),
    ),
    (IdempotencyConflict, Kind(HTTPStatus.CONFLICT, "The idempotency key is taken")),
    (ChoreTaken, Kind(HTTPStatus.CONFLICT, "The work is under way", retryable=True)),
    (UnknownPin, Kind(HTTPStatus.NOT_FOUND, "There is no such pin")),
    (UnknownRegistered, Kind(HTTPStatus.NOT_FOUND, "No such model is registered")),
    (NothingBuilt, Kind(HTTPStatus.CONFLICT, "The job has no bundle")),
    (RegistryFull, Kind(HTTPStatus.CONFLICT, "The registry is full")),
    (VersionInUse, Kind(HTTPStatus.CONFLICT, "An alias names the version")),
    (UnknownWebhook, Kind(HTTPStatus.NOT_FOUND, "There is no such webhook")),
    (TooManyWebhooks, Kind(HTTPStatus.CONFLICT, "The tenant has too many webhooks")),
    (UnknownTenant, Kind(HTTPStatus.NOT_FOUND, "There is no such tenant")),
    (UnknownToken, Kind(HTTPStatus.NOT_FOUND, "There is no such token")),
    (TenantKept, Kind(HTTPStatus.CONFLICT, "The tenant cannot be deleted")),
    (
        TenantBusy,
        Kind(HTTPStatus.CONFLICT, "Builds of the tenant are still running", retryable=True),
    ),
    (TenantExists, Kind(HTTPStatus.CONFLICT, "The tenant already exists")),
    (TooManyUploads, Kind(HTTPStatus.TOO_MANY_REQUESTS, "Too many uploads", retryable=True)),
    (QueueFull, Kind(HTTPStatus.TOO_MANY_REQUESTS, "The tenant's queue is full", retryable=True)),
    (NoWorker, Kind(HTTPStatus.SERVICE_UNAVAILABLE, "No worker is running", retryable=True)),
    (TargetNotServed, Kind(HTTPStatus.CONFLICT, "No running worker compiles for the target")),
    (UnknownIssuer, Kind(HTTPStatus.NOT_FOUND, "There is no such issuer")),
    (SignInRefused, Kind(HTTPStatus.FORBIDDEN, "The sign-in was refused")),
    (
        SignInUnavailable,
        Kind(HTTPStatus.SERVICE_UNAVAILABLE, "The issuer is not available", retryable=True),
    ),
    (OpenService, Kind(HTTPStatus.CONFLICT, "The service requires no sign-in")),
    (NotFinished, Kind(HTTPStatus.GATEWAY_TIMEOUT, "The work is still under way", retryable=True)),
    (DatabaseDamaged, Kind(HTTPStatus.INTERNAL_SERVER_ERROR, "The job database is damaged")),
    (
        DatabaseUnavailable,
        Kind(HTTPStatus.SERVICE_UNAVAILABLE, "The job database is not available", retryable=True),
    ),
    (ServiceError, INTERNAL),
    (BlobNotFound, Kind(HTTPStatus.NOT_FOUND, "There is no such blob")),
    (UnknownAction, Kind(HTTPStatus.NOT_FOUND, "No bundle has that action key")),
    (NoDump, Kind(HTTPStatus.NOT_FOUND, "No dump was kept")),
    (BlobCorrupt, Kind(HTTPStatus.NOT_FOUND, "The blob was corrupt and has been set aside")),
    (InvalidDigest, Kind(HTTPStatus.BAD_REQUEST, "That is not a digest")),
    (BundleError, Kind(HTTPStatus.BAD_REQUEST, "The bundle cannot be read")),
    (InvalidManifest, Kind(HTTPStatus.BAD_REQUEST, "That is not a manifest")),
    (DigestMismatch, Kind(HTTPStatus.BAD_REQUEST, "The content does not match its digest")),
    (StoreFull, Kind(HTTPStatus.INSUFFICIENT_STORAGE, "The store is full", retryable=True)),
    (
        StorageFailed,
        Kind(HTTPStatus.SERVICE_UNAVAILABLE, "The store is not available", retryable=True),
    ),
    (StoreError, INTERNAL),
    (
        HeaderTooLarge,
        Kind(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The header is too large"),
    ),
    (BodyTooLarge, Kind(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The body is too large")),
    (
        UnsupportedMediaType,
        Kind(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "The content type is not supported"),
    ),
    (MalformedForm, Kind(HTTPStatus.BAD_REQUEST, "The form is malformed")),
    (UnknownHost, Kind(HTTPStatus.MISDIRECTED_REQUEST, "The host name is not known")),
    (ForeignOrigin, Kind(HTTPStatus.FORBIDDEN, "Requests from pages of other origins are refused")),
    (TooManyRequests, Kind(HTTPStatus.TOO_MANY_REQUESTS, "Too many requests", retryable=True)),
    (Forbidden, Kind(HTTPStatus.FORBIDDEN, "The token lacks a scope")),
    (Unauthorized, Kind(HTTPStatus.UNAUTHORIZED, "A token is needed")),
    (ApiError, Kind(HTTPStatus.BAD_REQUEST, "The request is not valid")),
)
"""The first class that fits decides, so a class stands before its bases."""


def retry_headers(status: HTTPStatus) -> dict[str, str]:
    """The headers that say when to ask again after an answer of that status."""
    return {"Retry-After": str(RETRY_AFTER_S)} if status is HTTPStatus.SERVICE_UNAVAILABLE else {}


@dataclass(frozen=True)
class Problem:
    """A problem document and what goes with it; members of `extra` that are None are left out."""

    status: int
    code: str
    title: str
    detail: str
    retryable: bool = False
    extra: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The document that goes over the wire."""
        always = {
            "type": TYPE_PREFIX + self.code,
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            "retryable": self.retryable,
        }
        return always | {key: value for key, value in self.extra.items() if value is not None}


def problem_of(error: Exception) -> Problem:
    """The problem for any exception; one that the table does not know is internal, and its text
    stays on the server.
    """
    if isinstance(error, (RequestValidationError, ValidationError)):
        return _of_validation(list(error.errors()))
    if isinstance(error, HTTPException):
        return _of_http(error)
    if not isinstance(error, RelaxdError) or (kind := _known(type(error))) is None:
        return Problem(
            int(INTERNAL.status),
            "internal",
            INTERNAL.title,
            "an unexpected error; the server's log has it under this request's id",
            # The server closes after an exception: no other request may be sent this way.
            headers={"Connection": "close"},
        )
    failure = getattr(error, "failure", None)
    extra = {"hint": error.hint, "field": getattr(error, "field", None)}
    if isinstance(failure, Failure):
        extra |= {
            "stage": failure.stage,
            "pass": failure.pass_name,
            "node": failure.node,
            "op": failure.op,
            "field": failure.field,
        }
        extra["details"] = failure.details or None
    return Problem(
        int(kind.status),
        error.code,
        kind.title,
        error.message,
        kind.retryable or getattr(failure, "retryable", False),
        extra,
        _headers(error, kind),
    )


def kind_of(error: type[RelaxdError]) -> Kind:
    """The HTTP form of a class of errors."""
    return _known(error) or INTERNAL


def _known(error: type[Exception]) -> Kind | None:
    return next((kind for known, kind in KINDS if issubclass(error, known)), None)


def _headers(error: Exception, kind: Kind) -> dict[str, str]:
    seconds = getattr(error, "retry_after_s", None)
    return (
        retry_headers(kind.status) if seconds is None else {"Retry-After": str(math.ceil(seconds))}
    )


def _of_http(error: HTTPException) -> Problem:
    status = HTTPStatus(error.status_code)
    hint = {
        HTTPStatus.NOT_FOUND: "the endpoints are listed at /docs",
        HTTPStatus.METHOD_NOT_ALLOWED: "the Allow header names the methods",
    }.get(status)
    code = f"http.{status.name.lower()}"
    return Problem(
        int(status),
        code,
        status.phrase,
        str(error.detail),
        extra={"hint": hint},
        headers=dict(error.headers or {}),
    )


def _of_validation(errors: list[Any]) -> Problem:
    """One problem for all the mistakes of a document; `field` and `detail` are the first one's."""
    fields, details = (
        [_field(error["loc"]) for error in errors],
        [_sentence(error) for error in errors],
    )
    detail = "; ".join(
        f"{field}: {detail}" if field else detail
        for field, detail in zip(fields[:5], details, strict=False)
    )
    mistakes = [
        {"field": field, "detail": detail} for field, detail in zip(fields, details, strict=True)
    ]
    status = HTTPStatus.UNPROCESSABLE_ENTITY
    return Problem(
        int(status),
        "request.invalid",
        "The request is not valid",
        detail,
        extra={"field": fields[0], "errors": mistakes},
    )


def _field(location: tuple[int | str, ...]) -> str | None:
    """`dims.n.max` from Pydantic's location, less the part of the request and the branch of a
    union.
    """
    parts = [str(part) for part in location if not str(part).startswith("<")]
    if parts and parts[0] in ("body", "query", "path", "header"):
        parts = parts[1:]
    return ".".join(parts) or None


def _sentence(error: dict[str, Any]) -> str:
    match error["type"]:
        case "json_invalid":
            return f"the body is not JSON: {error.get('ctx', {}).get('error', error['msg'])}"
        case "extra_forbidden":
            return "unknown field"
        case "missing":
            return "is required"
    message = str(error["msg"])
    return message[:1].lower() + message[1:]
