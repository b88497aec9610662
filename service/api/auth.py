"""The bearer token: required of every request but health checks, if the service has one."""

import base64
import binascii
import hmac

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.errors import Unauthorized
from service.api.respond import respond

OPEN = frozenset({"/healthz", "/readyz"})


class Authentication:
    """ASGI middleware; container tooling may send the token as the password of Basic
    authentication, with any user name.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self.app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401 with the challenge that suits the path."""
        if scope["type"] != "http" or scope["path"] in OPEN:
            return await self.app(scope, receive, send)
        request = Request(scope, receive)
        if hmac.compare_digest(_credential(request.headers.get("Authorization", "")), self._token):
            return await self.app(scope, receive, send)
        error = Unauthorized(
            "the request carries no valid token",
            hint="send the server's RELAXD_TOKEN as `Authorization: Bearer TOKEN`; relaxd takes "
            "it from --token or RELAXD_TOKEN",
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


def _credential(header: str) -> bytes:
    scheme, _, value = header.partition(" ")
    match scheme.lower():
        case "bearer":
            return value.strip().encode()
        case "basic":
            try:
                return base64.b64decode(value.strip(), validate=True).partition(b":")[2]
            except (binascii.Error, ValueError):
                return b""
    return b""
