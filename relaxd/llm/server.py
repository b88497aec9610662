"""An endpoint as OpenAI's clients expect it, over one engine."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from relaxd.errors import InputError, OverloadError, RelaxdError
from relaxd.llm.engine import Engine
from relaxd.llm.generation import Finish, Generation, Piece
from relaxd.llm.metrics import LlmMetrics
from relaxd.llm.wire import Answer, Asked, failure, read_request

MAX_BODY = 8 << 20
_DONE = "data: [DONE]\n\n"


def create_app(engine: Engine, name: str) -> Starlette:
    """The ASGI app; `name` is what the endpoint calls its model. The engine stays the caller's to
    close.
    """
    endpoint = _Endpoint(engine, name)
    return Starlette(
        routes=[
            Route("/v1/chat/completions", endpoint.chat, methods=["POST"]),
            Route("/v1/completions", endpoint.complete, methods=["POST"]),
            Route("/v1/models", endpoint.models),
            Route("/metrics", endpoint.show_metrics),
            Route("/healthz", endpoint.health),
        ],
        exception_handlers={HTTPException: _refuse},
    )


async def _refuse(request: Request, error: Exception) -> Response:
    """Answers for paths and methods that are not there."""
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}"
    problem = {"message": message, "type": "invalid_request_error", "code": None, "param": None}
    return JSONResponse({"error": problem}, error.status_code)


class _Listening:
    """An answer whose pieces the engine's thread hands to the event loop."""

    generation: Generation

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pieces: asyncio.Queue[Piece] = asyncio.Queue()

    async def begin(self, engine: Engine, want: Asked) -> None:
        """Begins the answer; raises as the engine does."""
        # In a thread: others wait while a long prompt is encoded.
        self.generation = await asyncio.to_thread(self._begin, engine, want)

    def _begin(self, engine: Engine, want: Asked) -> Generation:
        if want.messages is not None:
            return engine.chat(want.messages, want.sampling, self._hear, priority=want.priority)
        return engine.generate(want.prompt or "", want.sampling, self._hear, priority=want.priority)

    def _hear(self, piece: Piece) -> None:
        # The loop may be closed by the time that the engine notices.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._pieces.put_nowait, piece)

    async def __aiter__(self) -> AsyncIterator[Piece]:
        while True:
            piece = await self._pieces.get()
            if piece.error is not None:
                raise piece.error
            yield piece
            if piece.finish is not None:
                return

    async def read_all(self) -> str:
        """Read the text of the whole completion."""
        return "".join([piece.text async for piece in self])


class _Endpoint:
    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self._name = name
        self._metrics = LlmMetrics(engine)

    async def chat(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        return await self._answer(request, chat=True)

    async def complete(self, request: Request) -> Response:
        """POST /v1/completions."""
        return await self._answer(request, chat=False)

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
            want = read_request(await _body(request), chat=chat)
            listening = _Listening()
            await listening.begin(self._engine, want)
            answer = Answer(self._name, chat=chat)
            if want.stream:
                stream = self._stream(listening, answer, want)
                return StreamingResponse(stream, media_type="text/event-stream")
            return await self._complete(request, listening, answer)
        except RelaxdError as error:
            self._metrics.count_refusal(error.code)
            return _failed(error)
        except ClientDisconnect:
            # It left within its own request: nobody reads what is returned.
            self._metrics.count_refusal(Finish.CANCELLED)
            return Response(status_code=400)

    async def _complete(self, request: Request, listening: _Listening, answer: Answer) -> Response:
        """The answer at once; a client that leaves ends it."""
        text = asyncio.ensure_future(listening.read_all())
        gone = asyncio.ensure_future(_gone(request))
        try:
            await asyncio.wait({text, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not text.done():
                listening.generation.cancel()
            completion = await text
            self._metrics.count_completion(listening.generation)
            return JSONResponse(answer.complete(listening.generation, completion))
        finally:
            listening.generation.cancel()
            gone.cancel()

    async def _stream(
        self, listening: _Listening, answer: Answer, want: Asked
    ) -> AsyncIterator[str]:
        """The answer's pieces as server-sent events; the server closes this where the client
        leaves.
        """
        generation = listening.generation
        try:
            if (first := answer.first()) is not None:
                yield _event(first)
            async for piece in listening:
                if piece.text or piece.finish is not None:
                    yield _event(answer.part(generation, piece.text, last=piece.finish is not None))
            if want.usage:
                yield _event(answer.usage(generation))
            yield _DONE
        except RelaxdError as error:
            yield _event(failure(error)[1])
        finally:
            generation.cancel()
            self._metrics.count_completion(generation)


def _failed(error: RelaxdError) -> Response:
    status, document = failure(error)
    retry = {"Retry-After": str(error.retry_after)} if isinstance(error, OverloadError) else None
    return JSONResponse(document, status, retry)


async def _body(request: Request) -> Any:
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > MAX_BODY:
            raise InputError(f"the body has more than {MAX_BODY >> 20} MiB")
    try:
        return json.loads(bytes(data))
    except (ValueError, RecursionError) as error:
        raise InputError(f"the body is no JSON: {error}") from error


async def _gone(request: Request) -> None:
    """Returns when the client has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _event(document: dict[str, Any]) -> str:
    return f"data: {json.dumps(document, separators=(',', ':'))}\n\n"
