"""How errors look to OpenAI's clients."""

import json
from typing import Any

from relaxd.contract.text import sanitize
from relaxd.errors import (
    AdapterInUseError,
    CapacityError,
    ClosedError,
    GrammarError,
    InputError,
    OverloadError,
    RelaxdError,
    UnknownAdapterError,
)
from relaxd.http.bodies import JSON_TYPE
from relaxd.http.connections import Refusal
from relaxd.http.errors import (
    ApiError,
    BodyTooLarge,
    ForeignOrigin,
    HeaderTooLarge,
    Unauthorized,
    UnknownHost,
    UnsupportedMediaType,
)


def failure(error: RelaxdError) -> tuple[int, dict[str, Any]]:
    """The status and the document of an error."""
    status, kind = next(
        ((status, kind) for known, status, kind in _STATUSES if isinstance(error, known)),
        (500, "server_error"),
    )
    code = next((code for known, code in _CODES if isinstance(error, known)), error.code)
    param = "response_format" if isinstance(error, GrammarError) else error.details.get("field")
    # What a message quotes is the client's, and may not even be text.
    return status, sanitize(_problem(str(error), kind, code, param))


def refuse_connection(refusal: Refusal) -> tuple[str, bytes]:
    """The media type and the body of what a connection is told before it is closed."""
    document = _problem(refusal.detail, "server_error", refusal.code, None)
    return JSON_TYPE, json.dumps(document).encode()


def _problem(message: str, kind: str, code: str, param: object) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "code": code, "param": param}}


_STATUSES: tuple[tuple[type[RelaxdError], int, str], ...] = (
    (UnknownAdapterError, 404, "invalid_request_error"),
    (AdapterInUseError, 409, "invalid_request_error"),
    (InputError, 400, "invalid_request_error"),
    (CapacityError, 400, "invalid_request_error"),
    (ClosedError, 503, "server_error"),
    (OverloadError, 429, "rate_limit_error"),
    (BodyTooLarge, 413, "invalid_request_error"),
    (UnsupportedMediaType, 415, "invalid_request_error"),
    (HeaderTooLarge, 431, "invalid_request_error"),
    (Unauthorized, 401, "authentication_error"),
    (ForeignOrigin, 403, "permission_error"),
    (UnknownHost, 421, "permission_error"),
    (ApiError, 400, "invalid_request_error"),
)
"""The first class that fits decides, so a class stands before its bases."""

_CODES = (
    (CapacityError, "context_length_exceeded"),
    (Unauthorized, "invalid_api_key"),
    (UnknownAdapterError, "model_not_found"),
)
"""Where OpenAI's clients know an error by a name of their own."""
