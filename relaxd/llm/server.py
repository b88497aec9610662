"""An endpoint as OpenAI's clients expect it, over one engine."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from relaxd.errors import InputError, RelaxdError, UnknownAdapterError
from relaxd.llm.door import ANYONE, LARGE, Access, Door, make_app
from relaxd.llm.engine import Engine
from relaxd.llm.generation import Finish
from relaxd.llm.limits import BoundedThreads
from relaxd.llm.listening import Listening
from relaxd.llm.metrics import LlmMetrics
from relaxd.llm.wire.answers import Answer
from relaxd.llm.wire.documents import read_field, read_object
from relaxd.llm.wire.requests import Asked, read_request
from relaxd.llm.wire.responses import Reply, convert_request
from relaxd.llm.wire.tokens import detokenize, tokenize

_DONE = "data: [DONE]\n\n"


def create_app(
    engine: Engine, name: str, access: Access = ANYONE, *, lora_updates: bool = False
) -> Starlette:
    """The ASGI app; `name` is what the endpoint calls its model. The engine stays the caller's to
    close. lora_updates: whether clients may load adapters from paths of this machine, and drop
    them.
    """
    endpoint = _Endpoint(engine, name)
    updates = [
        Route("/v1/load_lora_adapter", endpoint.load_adapter, methods=["POST"]),
        Route("/v1/unload_lora_adapter", endpoint.unload_adapter, methods=["POST"]),
    ]
    routes = [
        *(updates if lora_updates else ()),
        Route("/v1/chat/completions", endpoint.chat, methods=["POST"]),
        Route("/v1/completions", endpoint.complete, methods=["POST"]),
        Route("/v1/responses", endpoint.respond, methods=["POST"]),
        Route("/tokenize", endpoint.tokenize, methods=["POST"]),
        Route("/detokenize", endpoint.detokenize, methods=["POST"]),
        Route("/metrics", endpoint.show_metrics),
    ]
    return make_app(endpoint.door, routes, access)


class _Endpoint:
    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self._metrics = LlmMetrics(engine, name)
        count = self._metrics.count_refusal
        self.door = Door(name, engine.capacity, engine.longest_prompt, count, self._adapter_names)
        self._with_grammar = BoundedThreads("grammar", 4, 64)

    async def chat(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        return await self._answer(request, self._read_chat)

    async def complete(self, request: Request) -> Response:
        """POST /v1/completions."""
        return await self._answer(request, self._read_plain)

    async def respond(self, request: Request) -> Response:
        """POST /v1/responses."""
        return await self._answer(request, self._read_response)

    def _read_chat(self, document: Any) -> tuple[Asked, Answer]:
        return self._read(document, chat=True)

    def _read_plain(self, document: Any) -> tuple[Asked, Answer]:
        return self._read(document, chat=False)

    def _read(self, document: Any, *, chat: bool) -> tuple[Asked, Answer]:
        want = self._choose(document, read_request(document, chat=chat))
        name, spell = want.adapter or self.door.name, self._engine.spell
        return want, Answer(name, spell, chat=chat, n=want.n, usage=want.usage)

    def _read_response(self, document: Any) -> tuple[Asked, Reply]:
        want = self._choose(document, read_request(convert_request(document), chat=True))
        return want, Reply(want.adapter or self.door.name, document)

    def _choose(self, document: Any, want: Asked) -> Asked:
        """The request with the adapter that its model names; raises UnknownAdapterError for a name
        of neither an adapter nor the model. A model without adapters answers to every name.
        """
        model = read_field(document, "model", str)
        if model in (None, self.door.name) or not self._engine.takes_adapters:
            return want
        if model not in self._adapter_names():
            raise UnknownAdapterError(
                f"the model {model[:100]!r} does not exist",
                hint="GET /v1/models lists the model and its adapters",
                field="model",
            )
        return replace(want, adapter=model)

    def _adapter_names(self) -> list[str]:
        return [adapter.name for adapter in self._engine.adapters]

    async def load_adapter(self, request: Request) -> Response:
        """POST /v1/load_lora_adapter, in vLLM's form."""
        return await self._update(request, self._load)

    async def unload_adapter(self, request: Request) -> Response:
        """POST /v1/unload_lora_adapter, in vLLM's form."""
        return await self._update(request, self._unload)

    def _load(self, document: Any) -> str:
        name, path = (_required(document, field) for field in ("lora_name", "lora_path"))
        if name == self.door.name:
            raise InputError("the model has this name", hint="choose another", field="lora_name")
        self._engine.load_adapter(name, path)
        return f"the adapter {name!r} is loaded"

    def _unload(self, document: Any) -> str:
        name = _required(document, "lora_name")
        self._engine.unload_adapter(name)
        return f"the adapter {name!r} is dropped"

    async def _update(self, request: Request, work: Callable[[Any], str]) -> Response:
        try:
            async with self.door.bodies.read(request) as body:
                document = await self.door.parse(body)
                # Files are read one after the other, as large prompts are.
                message = await self.door.threads(LARGE + 1).run(partial(work, document))
                return PlainTextResponse(message)
        except RelaxdError as error:
            return self.door.refuse(request, error)
        except ClientDisconnect:
            return Response(status_code=400)

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
            async with self.door.bodies.read(request) as body:
                document = await self.door.parse(body)
                work = partial(convert, self._engine, document)
                return JSONResponse(await self.door.threads(len(body)).run(work))
        except RelaxdError as error:
            return self.door.refuse(request, error)
        except ClientDisconnect:
            return Response(status_code=400)

    async def show_metrics(self, request: Request) -> Response:
        """GET /metrics."""
        return Response(self._metrics.text(), media_type="text/plain; version=0.0.4")

    async def _answer(
        self, request: Request, read: Callable[[Any], tuple[Asked, Answer | Reply]]
    ) -> Response:
        try:
            async with self.door.bodies.read(request) as body:
                want, answer = read(await self.door.parse(body))
                listening = Listening()
                threads = self._threads(want, len(body))
                await threads.run(partial(listening.begin, self._engine, want))
            stream = want.stream
            # The prompt is not kept for as long as its answer takes.
            del want, body
            if stream:
                events = self._stream(listening, answer)
                return StreamingResponse(events, media_type="text/event-stream")
            return await self._complete(request, listening, answer)
        except RelaxdError as error:
            return self.door.refuse(request, error)
        except ClientDisconnect:
            # It left within its own request: nobody reads what is returned.
            self._metrics.count_refusal(Finish.CANCELLED)
            return Response(status_code=400)

    def _threads(self, want: Asked, size: int) -> BoundedThreads:
        grammar = want.sampling.grammar
        if want.tools.required:
            return self._with_grammar
        if grammar is not None and not self._engine.has_compiled(grammar):
            return self._with_grammar
        return self.door.threads(size)

    async def _complete(
        self, request: Request, listening: Listening, answer: Answer | Reply
    ) -> Response:
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

    async def _stream(self, listening: Listening, answer: Answer | Reply) -> AsyncIterator[str]:
        """The answer's pieces as server-sent events; the server closes this where the client
        leaves.
        """
        named, completions = answer.named, listening.completions
        try:
            for document in answer.begin(completions):
                yield _event(document, named=named)
            async for index, piece in listening:
                for document in answer.feed(index, completions[index], piece):
                    yield _event(document, named=named)
            for document in answer.end(completions):
                yield _event(document, named=named)
            if not named:
                yield _DONE
        except RelaxdError as error:
            yield _event(answer.fail(error), named=named)
        finally:
            listening.cancel()
            self._count(listening)


def _required(document: Any, name: str) -> str:
    value = read_field(read_object(document), name, str)
    if not value:
        raise InputError(f"{name} is needed", field=name)
    return str(value)


async def _gone(request: Request) -> None:
    """Returns when the client has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _event(document: dict[str, Any], *, named: bool) -> str:
    name = f"event: {document['type']}\n" if named else ""
    return f"{name}data: {json.dumps(document, separators=(',', ':'))}\n\n"
