"""An endpoint in a thread, for tests."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from relaxd.llm.serving import _listening, config_of


@contextmanager
def serving(app: Any, most: int = 1024, **protocol: Any) -> Iterator[str]:
    """The address of an endpoint with so many connections; protocol: its deadlines."""
    config = config_of(app, most)
    assert isinstance(config.http, type)
    config.http = type("Changed", (config.http,), protocol)
    server, sock = uvicorn.Server(config), _listening(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        sock.close()
