"""How an endpoint reaches the services that its app was made with."""

from typing import Annotated

from fastapi import Depends, Request

from service.api.scopes import principal_of
from service.api.watching import Watch
from service.bootstrap import Services
from service.identity import Principal
from service.jobs import Jobs


def services_of(request: Request) -> Services:
    """The services given to `create_app`."""
    services: Services = request.app.state.services
    return services


def jobs_of(request: Request) -> Jobs:
    """The facade over the use cases, for the tenant of whoever asks."""
    return services_of(request).jobs.of(principal_of(request).tenant)


def watch_of(request: Request) -> Watch:
    """The watch that wakes requests that wait for jobs."""
    watch: Watch = request.app.state.watch
    return watch


# FastAPI takes a thread for each dependency that is a plain function.
async def _services(request: Request) -> Services:
    return services_of(request)


async def _jobs(request: Request) -> Jobs:
    return jobs_of(request)


async def _watch(request: Request) -> Watch:
    return watch_of(request)


async def _principal(request: Request) -> Principal:
    return principal_of(request)


UseServices = Annotated[Services, Depends(_services)]
UseJobs = Annotated[Jobs, Depends(_jobs)]
UseWatch = Annotated[Watch, Depends(_watch)]
UsePrincipal = Annotated[Principal, Depends(_principal)]
