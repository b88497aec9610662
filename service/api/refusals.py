"""Which errors each endpoint answers with, as the OpenAPI document lists them by status."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from artifacts.errors import (
    BlobCorrupt,
    BlobNotFound,
    InvalidDigest,
    NoDump,
    StorageFailed,
    StoreFull,
    UnknownAction,
)
from compiler.errors import UnknownTarget
from relaxd.errors import BundleError, DeclarationError, RelaxdError
from relaxd.http.errors import (
    MEDIA_TYPE,
    TYPE_PREFIX,
    BodyTooLarge,
    ForeignOrigin,
    Unauthorized,
    UnknownHost,
    UnsupportedMediaType,
)
from service.api.errors import Forbidden, MalformedForm, TooManyRequests
from service.api.problems import kind_of
from service.errors import (
    ChoreTaken,
    DatabaseUnavailable,
    IdempotencyConflict,
    InspectionFailed,
    NotFinished,
    NothingBuilt,
    NoWorker,
    OpenService,
    QueueFull,
    RegistryFull,
    SignInRefused,
    SignInUnavailable,
    TargetNotServed,
    TenantExists,
    TooManyWebhooks,
    UnknownBlob,
    UnknownIssuer,
    UnknownJob,
    UnknownModel,
    UnknownPin,
    UnknownRegistered,
    UnknownTenant,
    UnknownToken,
    UnknownWebhook,
    VersionInUse,
)

Errors = tuple[type[RelaxdError], ...]

EVERYWHERE: Errors = (TooManyRequests, DatabaseUnavailable)
GUARDED: Errors = (Unauthorized, Forbidden)
"""Where requests need a token."""

_FORM: Errors = (MalformedForm, BodyTooLarge, UnsupportedMediaType, StorageFailed, StoreFull)
_DOCUMENT: Errors = (BodyTooLarge, UnsupportedMediaType)
_REQUEST: Errors = (DeclarationError, UnknownModel, UnknownBlob, UnknownTarget)
_SUBMITTED: Errors = (
    *_REQUEST,
    IdempotencyConflict,
    NoWorker,
    TargetNotServed,
    QueueFull,
    StoreFull,
)
_STORED: Errors = (InvalidDigest, BlobNotFound, BlobCorrupt, StorageFailed)

ERRORS: Mapping[tuple[str, str], Errors] = {
    ("post", "/v1/compile"): (*_FORM, *_SUBMITTED),
    ("post", "/v1/jobs"): (*_DOCUMENT, *_SUBMITTED),
    ("post", "/v1/inspect"): (*_FORM, *_REQUEST, InspectionFailed, NotFinished),
    ("get", "/v1/overview"): (UnknownJob,),
    ("get", "/v1/jobs/{job_id}"): (UnknownJob,),
    ("get", "/v1/jobs/{job_id}/events"): (UnknownJob,),
    ("get", "/v1/jobs/{job_id}/logs"): (UnknownJob,),
    ("post", "/v1/jobs/{job_id}:cancel"): (UnknownJob,),
    ("get", "/v1/artifacts/{digest}"): (*_STORED, NoDump),
    ("get", "/v1/artifacts/{digest}/report"): (*_STORED, BundleError),
    ("get", "/v1/artifacts/{digest}/trace"): (*_STORED, BundleError),
    ("get", "/v1/actions/{digest}"): (*_STORED, UnknownAction),
    ("post", "/v1/gc"): (ChoreTaken, StorageFailed),
    ("put", "/v1/pins/{digest}"): _STORED,
    ("delete", "/v1/pins/{digest}"): (InvalidDigest, UnknownPin),
    ("get", "/v1/models/{name}"): (UnknownRegistered,),
    ("get", "/v1/models/{name}/builds"): (UnknownRegistered,),
    ("patch", "/v1/models/{name}"): (UnknownRegistered,),
    ("delete", "/v1/models/{name}"): (UnknownRegistered,),
    ("post", "/v1/models/{name}/versions"): (*_STORED, UnknownJob, NothingBuilt, RegistryFull),
    ("get", "/v1/models/{name}/versions/{version}"): (UnknownRegistered,),
    ("delete", "/v1/models/{name}/versions/{version}"): (UnknownRegistered, VersionInUse),
    ("put", "/v1/models/{name}/aliases/{alias}"): (UnknownRegistered, RegistryFull),
    ("delete", "/v1/models/{name}/aliases/{alias}"): (UnknownRegistered,),
    ("post", "/v1/webhooks"): (TooManyWebhooks,),
    ("delete", "/v1/webhooks/{webhook_id}"): (UnknownWebhook,),
    ("post", "/v1/webhooks/{webhook_id}:ping"): (UnknownWebhook,),
    ("get", "/v1/webhooks/{webhook_id}/deliveries"): (UnknownWebhook,),
    ("post", "/v1/sign-in"): (*_DOCUMENT, UnknownIssuer, SignInRefused, SignInUnavailable),
    ("get", "/v1/tokens"): (UnknownTenant,),
    ("post", "/v1/tokens"): (OpenService, UnknownTenant),
    ("delete", "/v1/tokens/{token_id}"): (UnknownToken, UnknownTenant),
    ("post", "/v1/tokens/{token_id}:rotate"): (UnknownToken, UnknownTenant),
    ("get", "/v1/audit"): (UnknownTenant,),
    ("post", "/v1/tenants"): (TenantExists, DeclarationError),
    ("patch", "/v1/tenants/{name}"): (UnknownTenant,),
    ("delete", "/v1/tenants/{name}"): (UnknownTenant,),
    ("get", "/readyz"): (StorageFailed, StoreFull),
}
"""Beside the errors of every endpoint, and those of what takes parameters or changes something."""


def refusals(
    method: str, path: str, *, takes: bool, guarded: bool, problem: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """The OpenAPI responses of an operation's errors by status; `takes`: it has parameters or a
    body; `guarded`: it needs a token; `problem`: the schema of the documents.
    """
    errors = [*EVERYWHERE, *ERRORS.get((method, path), ())]
    errors += GUARDED if guarded else (UnknownHost,)
    errors += [] if method in ("get", "head") else [ForeignOrigin]
    errors += [DeclarationError] if takes else []
    by_status: dict[int, dict[str, str]] = defaultdict(dict)
    for error in errors:
        kind = kind_of(error)
        by_status[int(kind.status)][error.code] = kind.title
    return {
        str(status): _response(status, titles, problem)
        for status, titles in sorted(by_status.items())
    }


def _response(status: int, titles: Mapping[str, str], problem: Mapping[str, Any]) -> dict[str, Any]:
    text = "; ".join(f"{title} (`{code}`)" for code, title in titles.items())
    code, title = next(iter(titles.items()))
    example = {
        "type": TYPE_PREFIX + code,
        "title": title,
        "status": status,
        "detail": "A sentence about this request.",
        "code": code,
        "retryable": status in (429, 503, 504, 507),
        "request_id": "ac3760cca51948d9bb500ca37ac70fce",
    }
    content = {MEDIA_TYPE: {"schema": dict(problem), "example": example}}
    return {"description": f"{text}.", "content": content}
