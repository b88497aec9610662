"""The door that every endpoint of a model has: who may come in, bodies within limits, errors as
OpenAI's clients know them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from relaxd.errors import OverloadError, RelaxdError
from relaxd.http.credentials import KeyRequired
from relaxd.http.framing import Framing
from relaxd.http.hosts import CheckedHost, KnownHosts
from relaxd.http.origins import Respond, SameOrigin
from relaxd.llm.limits import BodyBudget, BoundedThreads
from relaxd.llm.wire.documents import read_document
from relaxd.llm.wire.failures import failure

MAX_BODY = 8 << 20
ALL_BODIES = 64 << 20
LARGE = 64 << 10
"""The size of a body that is parsed and tokenized behind others of its size."""
_BESIDE = 1 << 20
"""Bytes of a body beside its prompt."""
_ESCAPED = 6
"""The most bytes of JSON for one of a prompt."""
_PER_TOKEN = 8
"""Bytes of JSON, or values, for a token."""
_VALUES = 1 << 16
_OPEN = frozenset({"/health", "/healthz"})


@dataclass(frozen=True)
class Access:
    """Who may use the endpoint. key: what a request has to carry, None for anyone who calls the
    server by an address, by a name of this machine or by one of `hosts`.
    """

    key: str | None = None
    hosts: frozenset[str] = frozenset()


ANYONE = Access()


class Door:
    """Bodies of requests to one model, and what those are told that are refused.

    capacity: the tokens of a request; longest_prompt: the most bytes of one that fits; count:
    counts refusals by their codes; adapters: the names of those that are loaded now.
    """

    def __init__(
        self,
        name: str,
        capacity: int,
        longest_prompt: int | None,
        count: Callable[[str], None],
        adapters: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self.name = name
        self._adapters = adapters
        self._count = count
        prompt = max(_ESCAPED * (longest_prompt or 0), _PER_TOKEN * capacity)
        # More bytes than a request has whose prompt fits.
        self.bodies = BodyBudget(min(MAX_BODY, _BESIDE + prompt), ALL_BODIES)
        self._most_values = _VALUES + _PER_TOKEN * capacity
        self._quick = BoundedThreads("plain", 4, 1024)
        self._large = BoundedThreads("large", 1, 16)

    def threads(self, size: int) -> BoundedThreads:
        """The threads for what a body of this size asks."""
        return self._large if size > LARGE else self._quick

    async def parse(self, body: bytes) -> Any:
        """The document of a body; of a large one in a thread, as it takes long."""
        if len(body) <= LARGE:
            return read_document(body, self._most_values)
        return await self._large.run(partial(read_document, body, self._most_values))

    def refuse(self, request: Request, error: RelaxdError) -> Response:
        """The answer of an error, which is counted."""
        self._count(error.code)
        status, document = failure(error)
        response = JSONResponse(document, status)
        if isinstance(error, OverloadError):
            response.headers["Retry-After"] = str(error.retry_after)
        return response

    async def fail(self, request: Request, error: Exception) -> Response:
        """The answer of an error that nothing foresees, which the server logs."""
        return self.refuse(request, RelaxdError("an unexpected error; the server's log has it"))

    async def models(self, request: Request) -> Response:
        """GET /v1/models."""
        shared = {"object": "model", "created": 0, "owned_by": "relaxd"}
        names = self._adapters()
        adapters = [{"id": name, **shared, "parent": self.name} for name in names]
        data = [{"id": self.name, **shared}, *adapters]
        return JSONResponse({"object": "list", "data": data})

    async def health(self, request: Request) -> Response:
        """GET /health, as vLLM has it, and /healthz."""
        return JSONResponse({"status": "ok"})


def make_app(door: Door, routes: Sequence[Route], access: Access) -> Starlette:
    """The ASGI app of a door and what lies behind it."""
    respond = door.refuse
    return Starlette(
        routes=[
            *routes,
            Route("/v1/models", door.models),
            *(Route(path, door.health) for path in sorted(_OPEN)),
        ],
        middleware=[
            Middleware(Framing, respond=respond),
            Middleware(SameOrigin, respond=respond, hint="pages of other servers may not ask"),
            _entrance(access, respond),
        ],
        exception_handlers={HTTPException: _refuse, Exception: door.fail},
    )


def _entrance(access: Access, respond: Respond) -> Middleware:
    """Asks for the key, or where there is none for a name of this server."""
    shared: dict[str, Any] = {"respond": respond, "open_paths": _OPEN}
    if access.key is not None:
        return Middleware(KeyRequired, key=access.key, **shared)
    hint = "name it with --allow-host, or ask for a key"
    return Middleware(CheckedHost, hosts=KnownHosts(access.hosts), hint=hint, **shared)


async def _refuse(request: Request, error: Exception) -> Response:
    """Answers for paths and methods that are not there."""
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}"
    problem = {"message": message, "type": "invalid_request_error", "code": None, "param": None}
    return JSONResponse({"error": problem}, error.status_code)
