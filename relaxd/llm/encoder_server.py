"""An endpoint for embeddings and reranking, over one encoder."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from relaxd.errors import ExecutionError, InputError, RelaxdError
from relaxd.llm.door import ANYONE, Access, Door, make_app
from relaxd.llm.encoder import Encoder, Row
from relaxd.llm.wire.embeddings import (
    RerankAsked,
    normalize,
    read_embeddings,
    read_reranking,
    score_pair,
)

Array = np.ndarray[Any, Any]
_CANCELLED = "cancelled"


def create_encoder_app(encoder: Encoder, name: str, access: Access = ANYONE) -> Starlette:
    """The ASGI app; `name` is what the endpoint calls its model. The encoder stays the caller's to
    close.
    """
    endpoint = _Endpoint(encoder, name)
    rerank = [
        Route(path, endpoint.rerank, methods=["POST"])
        for path in ("/v1/rerank", "/v2/rerank", "/rerank")
    ]
    routes = [
        Route("/v1/embeddings", endpoint.embed, methods=["POST"]),
        *rerank,
        Route("/metrics", endpoint.show_metrics),
    ]
    return make_app(endpoint.door, routes, access)


class _Endpoint:
    def __init__(self, encoder: Encoder, name: str) -> None:
        self._encoder = encoder
        self._registry = CollectorRegistry()
        shared: dict[str, Any] = {"registry": self._registry}
        self._ended = Counter("relaxd_llm_requests", "Requests that ended.", ["finish"], **shared)
        self._tokens = Counter("relaxd_llm_tokens", "Tokens.", ["kind"], **shared)
        waiting = Gauge("relaxd_llm_texts_waiting", "Texts that wait.", **shared)
        waiting.set_function(lambda: encoder.waiting)
        self.door = Door(name, encoder.capacity, encoder.longest_prompt, self._count)

    def _count(self, finish: str) -> None:
        self._ended.labels(finish).inc()

    async def embed(self, request: Request) -> Response:
        """POST /v1/embeddings."""
        return await self._answer(request, self._embed)

    async def rerank(self, request: Request) -> Response:
        """POST /v1/rerank, and the other paths by which Cohere's and Jina's clients ask."""
        return await self._answer(request, self._rerank)

    async def show_metrics(self, request: Request) -> Response:
        """GET /metrics."""
        text = generate_latest(self._registry)
        return Response(text, media_type="text/plain; version=0.0.4")

    async def _answer(
        self, request: Request, work: Callable[[Any, int], Awaitable[dict[str, Any]]]
    ) -> Response:
        try:
            async with self.door.bodies.read(request) as body:
                document, size = await self.door.parse(body), len(body)
            answer = await work(document, size)
        except RelaxdError as error:
            return self.door.refuse(request, error)
        except ClientDisconnect:
            self._count(_CANCELLED)
            return Response(status_code=400)
        self._count("stop")
        return JSONResponse(answer)

    async def _embed(self, document: Any, size: int) -> dict[str, Any]:
        asked = read_embeddings(document)
        if self._encoder.scores:
            raise InputError("the model scores pairs and has no vectors", hint="ask /v1/rerank")
        encode = self._encoder.encode
        rows = await self._encode(size, lambda: [encode(each) for each in asked.inputs])
        return asked.answer(self.door.name, await self._run(rows), _count_tokens(rows))

    async def _rerank(self, document: Any, size: int) -> dict[str, Any]:
        asked = read_reranking(document)
        if self._encoder.scores:
            encode = partial(self._encoder.encode_pair, asked.query)
            rows = await self._encode(size, lambda: [encode(each) for each in asked.documents])
            scores = [score_pair(outputs) for outputs in await self._run(rows)]
        else:
            rows = await self._encode(size, lambda: self._encode_texts(asked))
            query, *others = [normalize(vector) for vector in await self._run(rows)]
            scores = [float(query @ other) for other in others]
        return asked.answer(self.door.name, scores, _count_tokens(rows))

    def _encode_texts(self, asked: RerankAsked) -> list[Row]:
        # An empty document is one that answers nothing, and has tokens around it alone.
        return [self._encoder.encode(text or " ") for text in (asked.query, *asked.documents)]

    async def _encode(self, size: int, work: Callable[[], list[Row]]) -> list[Row]:
        """Tokenize beside others, in the threads for bodies of the size."""
        rows = await self.door.threads(size).run(work)
        self._tokens.labels("prompt").inc(_count_tokens(rows))
        return rows

    async def _run(self, rows: Sequence[Row]) -> list[Array]:
        """The outputs of all rows; one that fails ends the request, and what waits of it."""
        futures = [asyncio.wrap_future(future) for future in self._encoder.submit(rows)]
        try:
            outputs = await asyncio.gather(*futures)
        finally:
            for future in futures:
                future.cancel()
        if not all(np.isfinite(output).all() for output in outputs):
            raise ExecutionError("the model's outputs are not finite")
        return outputs


def _count_tokens(rows: Sequence[Row]) -> int:
    return sum(len(row.tokens) for row in rows)
