"""Errors of the registry API, in the form that OCI clients read."""

from collections.abc import Callable, Coroutine
from enum import StrEnum
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response
from fastapi.responses import JSONResponse

from artifacts.errors import (
    BlobCorrupt,
    BlobNotFound,
    DigestMismatch,
    InvalidDigest,
    InvalidManifest,
    StorageFailed,
    StoreError,
    StoreFull,
)
from relaxd.errors import RelaxdError
from service.api.problems import retry_headers
from service.api.tenant_threads import TenantRoute
from service.errors import TooManyUploads


class Code(StrEnum):
    """Error codes of the distribution spec."""

    BLOB_UNKNOWN = "BLOB_UNKNOWN"
    BLOB_UPLOAD_INVALID = "BLOB_UPLOAD_INVALID"
    BLOB_UPLOAD_UNKNOWN = "BLOB_UPLOAD_UNKNOWN"
    DENIED = "DENIED"
    DIGEST_INVALID = "DIGEST_INVALID"
    MANIFEST_BLOB_UNKNOWN = "MANIFEST_BLOB_UNKNOWN"
    MANIFEST_INVALID = "MANIFEST_INVALID"
    MANIFEST_UNKNOWN = "MANIFEST_UNKNOWN"
    NAME_INVALID = "NAME_INVALID"
    NAME_UNKNOWN = "NAME_UNKNOWN"
    SIZE_INVALID = "SIZE_INVALID"
    TOOMANYREQUESTS = "TOOMANYREQUESTS"
    UNAVAILABLE = "UNAVAILABLE"
    UNSUPPORTED = "UNSUPPORTED"
    UNKNOWN = "UNKNOWN"


class RegistryError(RelaxdError):
    """A request to the registry that fails with one of the spec's codes."""

    code = "oci.error"

    def __init__(
        self,
        oci_code: Code,
        message: str,
        status: HTTPStatus = HTTPStatus.BAD_REQUEST,
        headers: dict[str, str] | None = None,
        **details: Any,
    ) -> None:
        super().__init__(message, **details)
        self.oci_code = oci_code
        self.status = status
        self.headers = headers or {}

    def response(self) -> Response:
        """The spec's error document."""
        error = {
            "code": self.oci_code,
            "message": self.message,
            "detail": self.details | ({"hint": self.hint} if self.hint else {}),
        }
        return JSONResponse({"errors": [error]}, status_code=self.status, headers=self.headers)


TRANSLATIONS: tuple[tuple[type[StoreError], Code, HTTPStatus], ...] = (
    (InvalidDigest, Code.DIGEST_INVALID, HTTPStatus.BAD_REQUEST),
    (DigestMismatch, Code.DIGEST_INVALID, HTTPStatus.BAD_REQUEST),
    (BlobNotFound, Code.BLOB_UNKNOWN, HTTPStatus.NOT_FOUND),
    (BlobCorrupt, Code.BLOB_UNKNOWN, HTTPStatus.NOT_FOUND),
    (InvalidManifest, Code.MANIFEST_INVALID, HTTPStatus.BAD_REQUEST),
    (StoreFull, Code.UNAVAILABLE, HTTPStatus.INSUFFICIENT_STORAGE),
    (StorageFailed, Code.UNAVAILABLE, HTTPStatus.SERVICE_UNAVAILABLE),
    (StoreError, Code.UNKNOWN, HTTPStatus.INTERNAL_SERVER_ERROR),
)


def translate(error: StoreError) -> RegistryError:
    """The registry's error for a store's; the first class that fits decides."""
    code, status = next(
        (code, status) for known, code, status in TRANSLATIONS if isinstance(error, known)
    )
    headers = retry_headers(status)
    return RegistryError(code, error.message, status, headers, hint=error.hint, **error.details)


def _too_many(error: TooManyUploads) -> RegistryError:
    status, headers = HTTPStatus.TOO_MANY_REQUESTS, {"Retry-After": str(error.retry_after_s)}
    return RegistryError(Code.TOOMANYREQUESTS, error.message, status, headers, hint=error.hint)


class RegistryRoute(TenantRoute):
    """A route whose errors leave as OCI error documents."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, with errors turned into answers."""
        handler = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handler(request)
            except RegistryError as error:
                return error.response()
            except TooManyUploads as error:
                return _too_many(error).response()
            except StoreError as error:
                return translate(error).response()

        return answer
