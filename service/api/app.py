"""The app: routers, middleware, one handler for errors."""

from http import HTTPStatus

import structlog
from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from prometheus_client import CollectorRegistry
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from relaxd.errors import RelaxdError
from relaxd.http.framing import Framing
from relaxd.http.hosts import KnownHosts
from relaxd.http.origins import SameOrigin
from service.api import (
    audit,
    health,
    jobs,
    models,
    oci,
    overview,
    page,
    registry,
    sign_in,
    storage,
    tenancy,
    usage,
    webhooks,
)
from service.api.access import Access, RequestMetrics
from service.api.audit import Auditor
from service.api.auth import Authentication
from service.api.board import Board
from service.api.context import jobs_of
from service.api.cors import PullsFromPages
from service.api.oci_sessions import Bounds, Sessions
from service.api.openapi import describe
from service.api.rates import Rates
from service.api.respond import respond
from service.api.scopes import authorize
from service.api.watching import Watch
from service.bootstrap import Services
from service.usecases.readiness import Readiness
from service.usecases.store.reserving import Uploads
from service.usecases.tenants.entering import Gate

CLIENT_CLOSED_REQUEST = 499

logger = structlog.get_logger("relaxd.api")


def create_app(services: Services) -> FastAPI:
    """The ASGI app over `services`, which stay the caller's to close."""
    app = FastAPI(
        title="relaxd",
        version="1",
        description="Compiles dynamic-shape models, once per target. Errors are RFC 9457 problems "
        "with a stable `type`.",
        docs_url=None,
        redoc_url=None,
    )
    app.state.services = services
    app.state.readiness = Readiness(services.core)
    app.state.watch = Watch(services.jobs.of(None))
    app.state.board = Board(services.jobs.of)
    app.state.registry = CollectorRegistry()
    redirect_from = services.settings.redirect_bytes
    artifacts = oci.router(
        lambda request: jobs_of(request).store, _sessions(services), redirect_from
    )
    access = (sign_in, tenancy, webhooks, audit, usage, health)
    own = (jobs, overview, models, registry, storage, *access)
    for router in (*(module.router for module in own), artifacts):
        app.include_router(router, dependencies=[Depends(authorize)])
    app.router.routes.extend(page.routes())
    for kind in (RelaxdError, RequestValidationError, ValidationError):
        app.add_exception_handler(kind, _answer)
    app.add_exception_handler(HTTPException, _answer_http)  # type: ignore[arg-type]
    app.add_exception_handler(ClientDisconnect, _answer_nobody)
    app.add_exception_handler(Exception, _answer_unexpected)
    core = services.core
    app.add_middleware(
        Authentication,
        gate=Gate(core, services.verify),
        rates=Rates(core),
        auditor=Auditor(core),
        hosts=KnownHosts(services.settings.allowed_hosts.split()),
    )
    origins = frozenset(services.settings.allowed_origins.split())
    hint = "name the origin in RELAXD_ALLOWED_ORIGINS on the server if it may send requests"
    app.add_middleware(SameOrigin, respond=respond, allowed=origins, hint=hint)
    # Before signing in: a browser asks without the page's token, and a page reads refusals too.
    app.add_middleware(PullsFromPages, origins=tuple(services.settings.pull_origins.split()))
    app.add_middleware(Framing, respond=respond)
    app.add_middleware(Access, metrics=RequestMetrics(app.state.registry), tracer=core.tracer)
    secured = services.settings.token is not None or services.verify is not None
    app.openapi = lambda: describe(app, secured=secured)  # type: ignore[method-assign]
    return app


def _sessions(services: Services) -> Sessions:
    settings = services.settings
    bounds = Bounds(settings.max_model_bytes, settings.reserve_bytes, settings.upload_s)
    return Sessions(settings.upload_dir, bounds, Uploads(services.core))


async def _answer(request: Request, error: Exception) -> JSONResponse:
    response = respond(request, error)
    if response.status_code >= 500:
        logger.error(
            "request failed", code=getattr(error, "code", None), error=str(error), exc_info=error
        )
    return response


async def _answer_http(request: Request, error: HTTPException) -> JSONResponse:
    """Starlette's own errors, with a sentence in place of the status phrase."""
    plain = {
        404: f"{request.url.path} does not exist",
        405: f"{request.method} is not allowed on {request.url.path}",
    }
    if error.detail == HTTPStatus(error.status_code).phrase:
        error.detail = plain.get(error.status_code, error.detail)
    return respond(request, error)


async def _answer_nobody(request: Request, error: Exception) -> Response:
    """The client is gone, which is no fault of the service's; the access log has the status. The
    audit log does not: before the end of its body, a request changes nothing.
    """
    request.state.action = None
    return Response(status_code=CLIENT_CLOSED_REQUEST)


async def _answer_unexpected(request: Request, error: Exception) -> JSONResponse:
    logger.error(
        "request failed", error=repr(error), request_id=getattr(request.state, "request_id", None)
    )
    return respond(request, error)
