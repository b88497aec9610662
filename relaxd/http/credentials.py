"""The credential that a request carries, and a server that asks for one key."""

import base64
import binascii
import hmac

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from relaxd.http.errors import Unauthorized
from relaxd.http.origins import Respond

LONGEST_CREDENTIAL = 16 << 10


def read_credential(header: str) -> str:
    """The token of an Authorization header, empty for none that could be one; the password of Basic
    authentication, with any user name, is a token too.
    """
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


class KeyRequired:
    """ASGI middleware: a request carries `key`, but for those of the paths `open_paths`."""

    def __init__(
        self, app: ASGIApp, respond: Respond, key: str, open_paths: frozenset[str] = frozenset()
    ) -> None:
        self.app = app
        self._respond = respond
        self._key = key.encode()
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401."""
        if scope["type"] != "http" or scope["path"] in self._open_paths:
            return await self.app(scope, receive, send)
        request = Request(scope, receive)
        credential = read_credential(request.headers.get("Authorization", ""))
        if hmac.compare_digest(credential.encode(), self._key):
            return await self.app(scope, receive, send)
        error = Unauthorized(
            "the request carries no valid key", hint="send it as `Authorization: Bearer KEY`"
        )
        response = self._respond(request, error)
        response.headers["WWW-Authenticate"] = 'Bearer realm="relaxd"'
        return await response(scope, receive, send)
