"""The HTTP client of a relaxd service: compile, watch, pull. Needs httpx only."""

from relaxd.client.asynchronous import AsyncClient as AsyncClient
from relaxd.client.asynchronous import AsyncJob as AsyncJob
from relaxd.client.build import Build as Build
from relaxd.client.client import Client as Client
from relaxd.client.errors import JobFailed as JobFailed
from relaxd.client.errors import PullError as PullError
from relaxd.client.errors import WaitTimeout as WaitTimeout
from relaxd.client.job import JobEvent as JobEvent
from relaxd.client.job import JobHandle as JobHandle

__all__ = [
    "AsyncClient",
    "AsyncJob",
    "Build",
    "Client",
    "JobEvent",
    "JobFailed",
    "JobHandle",
    "PullError",
    "WaitTimeout",
]
