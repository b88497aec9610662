"""An endpoint in a thread, for tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from relaxd.llm.serving import _listening, config_of
from tests.support.servers import serve


@contextmanager
def serving(app: Any, most: int = 1024, **protocol: Any) -> Iterator[str]:
    """The address of an endpoint with so many connections; protocol: its deadlines."""
    config = config_of(app, most)
    assert isinstance(config.http, type)
    config.http = type("Changed", (config.http,), protocol)
    with _listening(("127.0.0.1", 0)) as listener, serve(config, listener) as port:
        yield f"http://127.0.0.1:{port}"
