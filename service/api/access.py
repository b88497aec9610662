"""Gives every request an id, a line in the log, two metrics and a span."""

import re
import time
import uuid
from collections.abc import MutableMapping
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from artifacts.errors import StoreError
from service.api import page
from service.tracing import NO_SPAN, NO_TRACER, Role, Span, Tracer

HEADER = "X-Request-ID"
ACCEPTABLE = re.compile(r"[A-Za-z0-9._-]{1,64}")
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER_SCOPE = "other"
LONGEST_PATH = 512
QUIET = frozenset({"/healthz", "/readyz", "/metrics"})

logger = structlog.get_logger("relaxd.api")


class RequestMetrics:
    """Counters in a registry of their own, so that two apps in one process do not meet."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("method", "route", "status")
        self._requests = Counter(
            "relaxd_http_requests", "Requests answered.", labels, registry=registry
        )
        self._seconds = Histogram(
            "relaxd_http_request_seconds",
            "Time to the end of the answer.",
            ("method", "route"),
            registry=registry,
        )

    def note(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request; methods that clients make up are counted as one."""
        method = method if method in METHODS else OTHER_SCOPE
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)


class Access:
    """ASGI middleware, the outermost."""

    def __init__(self, app: ASGIApp, metrics: RequestMetrics, tracer: Tracer = NO_TRACER) -> None:
        self.app = app
        self._metrics = metrics
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with `request.state.request_id` set; `job_id` there is logged too."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        state = scope.setdefault("state", {})
        headers = Headers(scope=scope)
        state["request_id"] = _request_id(headers.get(HEADER, ""))
        status, began = 500, time.perf_counter()
        span = self._begin(scope, headers)

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = int(message["status"])
                MutableHeaders(scope=message)[HEADER] = state["request_id"]
            await send(message)

        try:
            with (
                structlog.contextvars.bound_contextvars(request_id=state["request_id"]),
                self._tracer.active(span),
            ):
                await self.app(scope, receive, answer)
        except RuntimeError as error:
            # Starlette's, once an answer has begun. Returning breaks the connection.
            if not isinstance(error.__cause__, StoreError):
                raise
            logger.error("answer broken off", error=str(error.__cause__))
        finally:
            self._note(scope, state, status, time.perf_counter() - began, span)

    def _begin(self, scope: Scope, headers: Headers) -> Span:
        """The request's span, part of the client's trace where it names one."""
        if scope["path"] in QUIET:
            return NO_SPAN
        parent = headers.get("traceparent")
        return self._tracer.begin(scope["method"][:LONGEST_PATH], parent=parent, role=Role.SERVER)

    def _note(
        self,
        scope: Scope,
        state: MutableMapping[str, Any],
        status: int,
        seconds: float,
        span: Span,
    ) -> None:
        route = getattr(scope.get("route"), "path", "unmatched")
        self._metrics.note(scope["method"], route, status, seconds)
        job = (
            {"job_id": job_id}
            if (job_id := state.get("job_id") or scope.get("path_params", {}).get("job_id"))
            else {}
        )
        quiet = scope["path"] in QUIET or page.serves(scope["path"])
        log = logger.debug if quiet else logger.info
        traced = {"trace_id": trace_id} if (trace_id := span.trace_id) else {}
        log(
            "request",
            request_id=state["request_id"],
            method=scope["method"][:LONGEST_PATH],
            path=scope["path"][:LONGEST_PATH],
            status=status,
            milliseconds=round(seconds * 1000, 1),
            **job,
            **traced,
        )
        _end(span, scope, route, status, state["request_id"])


def _end(span: Span, scope: Scope, route: str, status: int, request_id: str) -> None:
    method = scope["method"] if scope["method"] in METHODS else OTHER_SCOPE
    span.rename(f"{method} {route}")
    attributes = {
        "http.request.method": method,
        "http.route": route,
        "http.response.status_code": status,
        "url.path": scope["path"],
        "relaxd.request_id": request_id,
    }
    span.note(attributes)
    if status >= 500:
        span.fail(str(status))
    span.end()


def _request_id(offered: str) -> str:
    return offered if ACCEPTABLE.fullmatch(offered) else uuid.uuid4().hex
