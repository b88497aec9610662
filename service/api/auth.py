"""Signing in: every request but health checks has a principal, or is answered with 401."""

import base64
import binascii

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.errors import Unauthorized
from service.api.respond import respond
from service.errors import DatabaseUnavailable
from service.usecases.entering import Gate

OPEN = frozenset({"/healthz", "/readyz"})
LONGEST_CREDENTIAL = 16 << 10


class Authentication:
    """ASGI middleware, which sets `request.state.principal`; container tooling may send a token as
    the password of Basic authentication, with any user name.
    """

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self.app = app
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401 with the challenge that suits the path."""
        if scope["type"] != "http" or scope["path"] in OPEN:
            return await self.app(scope, receive, send)
        request = Request(scope, receive)
        credential = _credential(request.headers.get("Authorization", ""))
        try:
            principal = await run_in_threadpool(self._gate.enter, credential)
        except DatabaseUnavailable as away:
            return await respond(request, away)(scope, receive, send)
        if principal is not None:
            request.state.principal = principal
            return await self.app(scope, receive, send)
        error = Unauthorized(
            "the request carries no valid token",
            hint="send a token as `Authorization: Bearer TOKEN`; relaxd takes it from --token or "
            "RELAXD_TOKEN",
        )
        response = respond(request, error)
        # OCI clients follow a Bearer challenge to a token server, of which there is none; Basic
        # makes them use their stored login.
        response.headers["WWW-Authenticate"] = (
            'Basic realm="relaxd"'
            if request.url.path.startswith("/v2")
            else 'Bearer realm="relaxd"'
        )
        return await response(scope, receive, send)


def _credential(header: str) -> str:
    """The token of the header, empty for none that could be one."""
    scheme, _, value = header.partition(" ")
    if len(value) > LONGEST_CREDENTIAL:
        return ""
    match scheme.lower():
        case "bearer":
            return value.strip()
        case "basic":
            try:
                decoded = base64.b64decode(value.strip(), validate=True)
                return decoded.partition(b":")[2].decode()
            except (binascii.Error, ValueError):
                return ""
    return ""
