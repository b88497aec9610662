"""Refuses requests of which two readers would see different ends, and headers without end."""

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from relaxd.http.errors import AmbiguousLength, HeaderTooLarge
from relaxd.http.origins import Respond

MOST_HEADER_BYTES = 32 << 10


class Framing:
    """ASGI middleware: a request has a Content-Length or a Transfer-Encoding, not both, as behind a
    proxy that reads the other one another request would hide in its body; and a header of
    MOST_HEADER_BYTES at the most. The connection of one that is refused is closed.
    """

    def __init__(self, app: ASGIApp, respond: Respond) -> None:
        self.app = app
        self._respond = respond

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 400 or 431."""
        if scope["type"] != "http" or (error := _mistake(scope)) is None:
            return await self.app(scope, receive, send)
        response = self._respond(Request(scope, receive), error)
        response.headers["Connection"] = "close"
        return await response(scope, receive, send)


def _mistake(scope: Scope) -> AmbiguousLength | HeaderTooLarge | None:
    names = {name for name, _ in scope["headers"]}
    if {b"content-length", b"transfer-encoding"} <= names:
        return AmbiguousLength()
    size = sum(len(name) + len(value) for name, value in scope["headers"])
    return HeaderTooLarge(MOST_HEADER_BYTES) if size > MOST_HEADER_BYTES else None
