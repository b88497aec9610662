"""Endpoints for operators of the service: alive, ready, metrics."""

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from service.api.context import UseServices
from service.api.wire import Health

router = APIRouter(tags=["operations"])

NO_BLOB = "sha256:" + "0" * 64


@router.get("/healthz", summary="Whether the process answers")
async def healthz() -> Health:
    """Needs no token."""
    return Health(status="ok")


@router.get("/readyz", summary="Whether the service can take jobs")
def readyz(services: UseServices) -> Health:
    """Asks the database and the store; a problem with status 503 while either is away. Needs no
    token.
    """
    services.check()
    services.store.blobs.has(NO_BLOB)
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
