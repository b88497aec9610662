"""Names by which a server that asks for no key may be called: a page of another name, which its
owner lets lead to this machine (DNS rebinding), would read and send all that the browser's user
can.
"""

import ipaddress
import socket
from collections.abc import Iterable

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from relaxd.http.errors import UnknownHost
from relaxd.http.origins import Respond

_LOOPBACK = ("localhost", "ip6-localhost")


class KnownHosts:
    """Loopback names, addresses, which no name server can redirect, this machine's own name, and
    `names` that the operator gave.
    """

    def __init__(self, names: Iterable[str]) -> None:
        own = (socket.gethostname(), *_LOOPBACK)
        self._names = frozenset(_normalize(name) for name in (*names, *own))

    def has(self, header: str) -> bool:
        """True for a request with that Host; without one it is no browser's."""
        host = _without_port(header.strip())
        name = _normalize(host.strip("[]"))
        return not header or name in self._names or name.endswith(".localhost") or _is_address(name)


class CheckedHost:
    """ASGI middleware: a request calls the server by a name of `hosts`, but for those of the paths
    `open_paths`; `hint` says how to add one.
    """

    def __init__(
        self,
        app: ASGIApp,
        respond: Respond,
        hosts: KnownHosts,
        hint: str,
        open_paths: frozenset[str] = frozenset(),
    ) -> None:
        self.app = app
        self._respond = respond
        self._hosts = hosts
        self._hint = hint
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 421."""
        if scope["type"] != "http" or scope["path"] in self._open_paths:
            return await self.app(scope, receive, send)
        request = Request(scope, receive)
        host = request.headers.get("Host", "")
        if self._hosts.has(host):
            return await self.app(scope, receive, send)
        return await self._respond(request, UnknownHost(host, self._hint))(scope, receive, send)


def _normalize(name: str) -> str:
    return name.lower().removesuffix(".")


def is_loopback(host: str) -> bool:
    """True for an address or a name that other machines cannot reach."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in _LOOPBACK


def _without_port(header: str) -> str:
    if header.startswith("["):
        return header.partition("]")[0]
    return header.partition(":")[0]


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
