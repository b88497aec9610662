"""Refuses requests whose heads are too large, or leave open where they end."""

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from relaxd.http.errors import AmbiguousLength, ApiError, HeadersTooLarge
from relaxd.http.origins import Respond

MOST_HEADER_BYTES = 32 << 10


class CheckedHead:
    """ASGI middleware: headers have at most MOST_HEADER_BYTES, and one of Content-Length and
    Transfer-Encoding. The connection closes behind what is refused.
    """

    def __init__(self, app: ASGIApp, respond: Respond) -> None:
        self.app = app
        self._respond = respond

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 400 or 431."""
        error = _fault(scope) if scope["type"] == "http" else None
        if error is None:
            return await self.app(scope, receive, send)
        response = self._respond(Request(scope, receive), error)
        response.headers["Connection"] = "close"
        return await response(scope, receive, send)


def _fault(scope: Scope) -> ApiError | None:
    headers = scope["headers"]
    if sum(len(name) + len(value) for name, value in headers) > MOST_HEADER_BYTES:
        return HeadersTooLarge(f"the headers are larger than {MOST_HEADER_BYTES} bytes")
    if {b"content-length", b"transfer-encoding"} <= {name for name, _ in headers}:
        return AmbiguousLength(
            "the request has Content-Length and Transfer-Encoding", hint="send one of them"
        )
    return None
