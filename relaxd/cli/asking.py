"""Asks a service for what is no folder or tar here."""

from collections.abc import Iterator
from contextlib import contextmanager

from relaxd.client import Client
from relaxd.errors import ServerUnreachable


@contextmanager
def asking(ref: str, server: str | None, token: str | None) -> Iterator[Client]:
    """A client; where nobody named a service and none answers, the error says that there is no such
    file either, which is what a mistyped path looks like.
    """
    with Client(server or None, token=token) as client:
        try:
            yield client
        except ServerUnreachable as error:
            if server:
                raise
            raise ServerUnreachable(
                f"there is no folder or tar {ref} here, and {error.message}",
                hint="give the path of a bundle; for a digest or a job start a service with "
                "`relaxd serve`, or name one with --server",
            ) from error
