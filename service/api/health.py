"""Endpoints for operators of the service: alive, ready, metrics."""

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from service.api.context import UseServices
from service.api.tenant_threads import TenantRoute
from service.api.wire import Health
from service.usecases.readiness import Readiness

router = APIRouter(route_class=TenantRoute, tags=["operations"])


@router.get("/healthz", summary="Whether the process answers")
async def healthz() -> Health:
    """Needs no token."""
    return Health(status="ok")


@router.get("/readyz", summary="Whether the service can take jobs")
def readyz(request: Request) -> Health:
    """Asks the database, and writes to the store and the data folder, every five seconds at most; a
    problem with status 503 or 507 while one of them is away or full. Needs no token.
    """
    readiness: Readiness = request.app.state.readiness
    readiness.check()
    return Health(status="ok")


@router.get(
    "/metrics",
    summary="Prometheus metrics",
    response_class=Response,
    responses={
        200: {
            "description": "Metrics in Prometheus' text format.",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        }
    },
)
def metrics(request: Request, services: UseServices) -> Response:
    """Requests, builds by state, the queue's age, live workers."""
    text = generate_latest(request.app.state.registry) + generate_latest(services.metrics)
    return Response(text, media_type=CONTENT_TYPE_LATEST)
