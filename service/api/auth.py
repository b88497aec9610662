"""Signing in: every request but health checks has a principal, or is answered with 401."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from relaxd.http.credentials import read_credential
from relaxd.http.errors import Unauthorized, UnknownHost
from relaxd.http.hosts import KnownHosts
from service.api import page
from service.api.audit import Auditor
from service.api.errors import TooManyRequests
from service.api.loop_turns import LoopTurns
from service.api.rates import Rates
from service.api.respond import respond
from service.api.tenant_threads import run_in_thread
from service.db.turns import TENANT
from service.errors import DatabaseUnavailable
from service.identity import Method, Principal
from service.usecases.tenants.entering import Gate

OPEN = frozenset({"/healthz", "/readyz", "/v1/sign-in"})
THREADS = 16
_ALLOW = "name the host in RELAXD_ALLOWED_HOSTS on the server, or set RELAXD_TOKEN there"

T = TypeVar("T")


class Authentication:
    """ASGI middleware, which sets `request.state.principal`; container tooling may send a token as
    the password of Basic authentication, with any user name. Where nobody has to sign in, the
    request has to call the service by a name of `hosts`.
    """

    def __init__(
        self, app: ASGIApp, gate: Gate, rates: Rates, auditor: Auditor, hosts: KnownHosts
    ) -> None:
        self.app = app
        self._hosts = hosts
        self._gate = gate
        self._rates = rates
        self._auditor = auditor
        self._threads = anyio.CapacityLimiter(THREADS)
        self._turns = LoopTurns()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401 with the challenge that suits the path."""
        if scope["type"] != "http" or _is_open(scope["path"]):
            return await self.app(scope, receive, send)
        request = Request(scope, receive)
        credential = read_credential(request.headers.get("Authorization", ""))
        try:
            principal = await self._enter(credential)
            self._check_host(request, principal)
        except (DatabaseUnavailable, TooManyRequests, UnknownHost) as refusal:
            return await respond(request, refusal)(scope, receive, send)
        if principal is not None:
            request.state.principal = principal
            TENANT.set(principal.tenant)
            return await self._turns.run(self._audited(principal, scope, receive, send))
        address = request.client.host if request.client else ""
        await self._apart(partial(self._auditor.record_refusal, address))
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

    def _check_host(self, request: Request, principal: Principal | None) -> None:
        host = request.headers.get("Host", "")
        if principal is not None and principal.method is Method.NONE and not self._hosts.has(host):
            raise UnknownHost(host, _ALLOW)

    async def _enter(self, credential: str) -> Principal | None:
        principal = self._gate.at_once(credential)
        if principal is None:
            principal = await self._apart(partial(self._gate.enter, credential))
        if principal is not None:
            if self._rates.are_old:
                await self._apart(self._rates.read)
            self._rates.take(principal.tenant)
        return principal

    async def _apart(self, work: Callable[[], T]) -> T:
        """Work that waits for the database, in threads which no slow endpoint takes."""
        return await anyio.to_thread.run_sync(work, limiter=self._threads)

    async def _audited(
        self, principal: Principal, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Pass the request on, and note it if it was to change something: before the end of the
        answer, so that what a client does next is noted behind it.
        """
        status, noted = 500, False

        async def note() -> None:
            nonlocal noted
            state = scope["state"]
            if (action := state.get("action")) and not noted:
                noted = True
                parameters = scope.get("path_params", {})
                entry = self._auditor.entry_of(principal, action, status, state, parameters)
                if entry is not None:
                    await run_in_thread(self._auditor.write, entry)

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = int(message["status"])
            elif not message.get("more_body", False):
                await note()
            await send(message)

        try:
            await self.app(scope, receive, answer)
        finally:
            await note()


def _is_open(path: str) -> bool:
    return path in OPEN or page.serves(path)
