"""Refuses what a page of another origin makes a browser send: forms go without a preflight, and a
name that an attacker rebinds to this address makes its page one of the same origin.
"""

import ipaddress
from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from relaxd.http.errors import ApiError, ForeignHost, ForeignOrigin

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


class KnownHost:
    """ASGI middleware for a server that asks for no key: a request names it by an address, as
    `localhost`, or by one of `hosts`. A page cannot have an address rebound, as a name can be.
    """

    def __init__(
        self, app: ASGIApp, respond: Respond, hosts: frozenset[str] = frozenset(), hint: str = ""
    ) -> None:
        self.app = app
        self._respond = respond
        self._hosts = frozenset(host.lower() for host in hosts)
        self._hint = hint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 403."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        request = Request(scope, receive)
        host = request.headers.get("Host", "")
        if self._is_known(host):
            return await self.app(scope, receive, send)
        error = ForeignHost(host, self._hint)
        return await self._respond(request, error)(scope, receive, send)

    def _is_known(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        name = name.removesuffix(".")
        if name in self._hosts or name == "localhost" or name.endswith(".localhost"):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _is_own(origin: str, request: Request) -> bool:
    # A proxy may end TLS in front of the service, so schemes are not compared.
    try:
        return urlsplit(origin).netloc == request.headers.get("Host", "") != ""
    except ValueError:
        return False
