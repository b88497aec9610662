"""Refuses what a page of another origin makes a browser send: forms go without a preflight."""

from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from relaxd.http.errors import ApiError, ForeignOrigin

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})

Respond = Callable[[Request, ApiError], Response]
"""Makes the answer of an error."""


class SameOrigin:
    """ASGI middleware: a request that changes something comes from no page, from a page of the
    address that it asks, or from one of `allowed` (origins, as in `https://ci.example`). `hint`
    says how to allow one.
    """

    def __init__(
        self,
        app: ASGIApp,
        respond: Respond,
        allowed: frozenset[str] = frozenset(),
        hint: str = "",
    ) -> None:
        self.app = app
        self._respond = respond
        self._allowed = allowed
        self._hint = hint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 403."""
        if scope["type"] != "http" or scope["method"] in SAFE:
            return await self.app(scope, receive, send)
        request = Request(scope, receive)
        origin = request.headers.get("Origin")
        if origin is None or origin in self._allowed or _is_own(origin, request):
            return await self.app(scope, receive, send)
        error = ForeignOrigin(origin, self._hint)
        return await self._respond(request, error)(scope, receive, send)


def _is_own(origin: str, request: Request) -> bool:
    # A proxy may end TLS in front of the service, so schemes are not compared.
    try:
        return urlsplit(origin).netloc == request.headers.get("Host", "") != ""
    except ValueError:
        return False
