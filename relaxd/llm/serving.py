"""Runs the endpoint until a signal ends it."""

import socket
from pathlib import Path

import uvicorn

from relaxd.errors import InputError
from relaxd.llm.engine import Engine
from relaxd.llm.server import create_app
from relaxd.llm.speculation import Speculation


def serve(
    bundle: Path,
    tokenizer: Path | None,
    *,
    name: str | None,
    address: tuple[str, int],
    port_file: Path | None,
    sequences: int | None,
    capacity: int | None,
    waiting: int,
    sharing: bool,
    speculate: str | None,
    draft: Path | None,
    threads: int | None,
) -> None:
    """Load the bundle, listen, and answer until SIGINT or SIGTERM; raises InputError for an address
    that cannot be had.
    """
    with Engine.open(
        bundle,
        tokenizer,
        threads=threads,
        sequences=sequences,
        capacity=capacity,
        waiting=waiting,
        sharing=sharing,
        speculate=None if speculate is None else Speculation.parse(speculate),
        draft=draft,
    ) as engine:
        app = create_app(engine, name or engine.model.manifest.name)
        listening = _listening(address)
        host, port = listening.getsockname()[:2]
        print(f"relaxd llm: http://{host}:{port}/v1", flush=True)
        if port_file is not None:
            port_file.write_text(str(port))
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=5)
        uvicorn.Server(config).run(sockets=[listening])


def _listening(address: tuple[str, int]) -> socket.socket:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise InputError(
            f"cannot listen on {address[0]} port {address[1]}: {error.strerror or error}",
            hint="choose another with --host and --port",
        ) from error
    return listener
