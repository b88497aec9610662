"""An endpoint as OpenAI's clients expect it, over one engine."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from relaxd.errors import OverloadError, RelaxdError
from relaxd.http.credentials import KeyRequired
from relaxd.http.framing import Framing
from relaxd.http.hosts import CheckedHost, KnownHosts
from relaxd.http.origins import Respond, SameOrigin
from relaxd.llm.engine import Engine
from relaxd.llm.generation import Finish
from relaxd.llm.limits import BodyBudget, BoundedThreads
from relaxd.llm.listening import Listening
from relaxd.llm.metrics import LlmMetrics
from relaxd.llm.wire.answers import Answer
from relaxd.llm.wire.documents import read_document
from relaxd.llm.wire.failures import failure
from relaxd.llm.wire.requests import Asked, read_request
from relaxd.llm.wire.tokens import detokenize, tokenize

MAX_BODY = 8 << 20
ALL_BODIES = 64 << 20
_BESIDE = 1 << 20
"""Bytes of a body beside its prompt."""
_ESCAPED = 6
"""The most bytes of JSON for one of a prompt."""
_PER_TOKEN = 8
"""Bytes of JSON, or values, for a token."""
_VALUES = 1 << 16
_LARGE = 64 << 10
"""Of a body that is parsed and tokenized behind others of its size."""
_DONE = "data: [DONE]\n\n"
_OPEN = frozenset({"/healthz"})


@dataclass(frozen=True)
class Access:
    """Who may use the endpoint. key: what a request has to carry, None for anyone who calls the
    server by an address, by a name of this machine or by one of `hosts`.
    """

    key: str | None = None
    hosts: frozenset[str] = frozenset()


_ANYONE = Access()


def create_app(engine: Engine, name: str, access: Access = _ANYONE) -> Starlette:
    """The ASGI app; `name` is what the endpoint calls its model. The engine stays the caller's to
    close.
    """
    endpoint = _Endpoint(engine, name)
    respond = endpoint.refuse
    return Starlette(
        routes=[
            Route("/v1/chat/completions", endpoint.chat, methods=["POST"]),
            Route("/v1/completions", endpoint.complete, methods=["POST"]),
            Route("/v1/models", endpoint.models),
            Route("/tokenize", endpoint.tokenize, methods=["POST"]),
            Route("/detokenize", endpoint.detokenize, methods=["POST"]),
            Route("/metrics", endpoint.show_metrics),
            Route("/healthz", endpoint.health),
        ],
        middleware=[
            Middleware(Framing, respond=respond),
            Middleware(SameOrigin, respond=respond, hint="pages of other servers may not ask"),
            _entrance(access, respond),
        ],
        exception_handlers={HTTPException: _refuse, Exception: endpoint.fail},
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


class _Endpoint:
    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self._name = name
        self._metrics = LlmMetrics(engine, name)
        self._bodies = BodyBudget(_longest_body(engine), ALL_BODIES)
        self._most_values = _VALUES + _PER_TOKEN * engine.capacity
        self._quick = BoundedThreads("plain", 4, 1024)
        self._large = BoundedThreads("large", 1, 16)
        self._with_grammar = BoundedThreads("grammar", 4, 64)

    def refuse(self, request: Request, error: RelaxdError) -> Response:
        """The answer of an error, which is counted."""
        self._metrics.count_refusal(error.code)
        status, document = failure(error)
        response = JSONResponse(document, status)
        if isinstance(error, OverloadError):
            response.headers["Retry-After"] = str(error.retry_after)
        return response

    async def chat(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        return await self._answer(request, chat=True)

    async def complete(self, request: Request) -> Response:
        """POST /v1/completions."""
        return await self._answer(request, chat=False)

    async def tokenize(self, request: Request) -> Response:
        """POST /tokenize."""
        return await self._convert(request, tokenize)

    async def detokenize(self, request: Request) -> Response:
        """POST /detokenize."""
        return await self._convert(request, detokenize)

    async def _convert(
        self, request: Request, convert: Callable[[Engine, Any], dict[str, Any]]
    ) -> Response:
        try:
            async with self._bodies.read(request) as body:
                document = await self._parse(body)
                threads = self._large if len(body) > _LARGE else self._quick
                return JSONResponse(await threads.run(partial(convert, self._engine, document)))
        except RelaxdError as error:
            return self.refuse(request, error)
        except ClientDisconnect:
            return Response(status_code=400)

    async def models(self, request: Request) -> Response:
        """GET /v1/models."""
        own = {"id": self._name, "object": "model", "created": 0, "owned_by": "relaxd"}
        return JSONResponse({"object": "list", "data": [own]})

    async def show_metrics(self, request: Request) -> Response:
        """GET /metrics."""
        return Response(self._metrics.text(), media_type="text/plain; version=0.0.4")

    async def health(self, request: Request) -> Response:
        """GET /healthz."""
        return JSONResponse({"status": "ok"})

    async def _answer(self, request: Request, *, chat: bool) -> Response:
        try:
            async with self._bodies.read(request) as body:
                want = read_request(await self._parse(body), chat=chat)
                listening = Listening()
                threads = self._threads(want, len(body))
                await threads.run(partial(listening.begin, self._engine, want))
            answer = Answer(self._name, self._engine.spell, chat=chat, n=want.n)
            stream, usage = want.stream, want.usage
            # The prompt is not kept for as long as its answer takes.
            del want, body
            if stream:
                events = self._stream(listening, answer, usage=usage)
                return StreamingResponse(events, media_type="text/event-stream")
            return await self._complete(request, listening, answer)
        except RelaxdError as error:
            return self.refuse(request, error)
        except ClientDisconnect:
            # It left within its own request: nobody reads what is returned.
            self._metrics.count_refusal(Finish.CANCELLED)
            return Response(status_code=400)

    async def fail(self, request: Request, error: Exception) -> Response:
        """The answer of an error that nothing foresees, which the server logs."""
        return self.refuse(request, RelaxdError("an unexpected error; the server's log has it"))

    async def _parse(self, body: bytes) -> Any:
        """The document of a body; of a large one in a thread, as it takes long."""
        if len(body) <= _LARGE:
            return read_document(body, self._most_values)
        return await self._large.run(partial(read_document, body, self._most_values))

    def _threads(self, want: Asked, size: int) -> BoundedThreads:
        grammar = want.sampling.grammar
        if want.tools.required:
            return self._with_grammar
        if grammar is not None and not self._engine.has_compiled(grammar):
            return self._with_grammar
        return self._large if size > _LARGE else self._quick

    async def _complete(self, request: Request, listening: Listening, answer: Answer) -> Response:
        """The answer at once; a client that leaves ends it."""
        reading = asyncio.ensure_future(listening.read_all())
        gone = asyncio.ensure_future(_gone(request))
        try:
            await asyncio.wait({reading, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                listening.cancel()
            await reading
            self._count(listening)
            return JSONResponse(answer.complete(listening.completions))
        finally:
            listening.cancel()
            gone.cancel()

    def _count(self, listening: Listening) -> None:
        for generation in listening.generations:
            self._metrics.count_completion(generation)

    async def _stream(
        self, listening: Listening, answer: Answer, *, usage: bool
    ) -> AsyncIterator[str]:
        """The answer's pieces as server-sent events; the server closes this where the client
        leaves.
        """
        begun: set[int] = set()
        try:
            async for index, piece in listening:
                if index not in begun:
                    begun.add(index)
                    if (first := answer.first(index, listening.completions[index])) is not None:
                        yield _event(first)
                if (part := answer.part(index, listening.completions[index], piece)) is not None:
                    yield _event(part)
            if usage:
                yield _event(answer.usage(listening.generations))
            yield _DONE
        except RelaxdError as error:
            yield _event(failure(error)[1])
        finally:
            listening.cancel()
            self._count(listening)


def _longest_body(engine: Engine) -> int:
    """More bytes than a request has whose prompt fits."""
    prompt = max(_ESCAPED * (engine.longest_prompt or 0), _PER_TOKEN * engine.capacity)
    return min(MAX_BODY, _BESIDE + prompt)


async def _gone(request: Request) -> None:
    """Returns when the client has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _event(document: dict[str, Any]) -> str:
    return f"data: {json.dumps(document, separators=(',', ':'))}\n\n"
