"""The HTTP client of a relaxd service: compile, watch, pull. Needs httpx only."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_HOMES = {
    "AsyncClient": "asynchronous",
    "AsyncJob": "asynchronous",
    "Build": "build",
    "Client": "client",
    "JobEvent": "job",
    "JobFailed": "errors",
    "JobHandle": "job",
    "PullError": "errors",
    "WaitTimeout": "errors",
}


def __getattr__(name: str) -> Any:
    """Import on first use: the errors alone need no HTTP."""
    if name not in _HOMES:
        raise AttributeError(f"module 'relaxd.client' has no attribute {name!r}")
    return getattr(import_module(f"relaxd.client.{_HOMES[name]}"), name)
