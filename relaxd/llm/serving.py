"""Runs the endpoint until a signal ends it."""

import socket
import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import uvicorn
from starlette.applications import Starlette

from relaxd.errors import InputError
from relaxd.http import descriptors
from relaxd.http.connections import protocol
from relaxd.http.hosts import is_loopback
from relaxd.http.interpreter import prefer_latency
from relaxd.llm.cache_memory import CacheMemory
from relaxd.llm.door import Access
from relaxd.llm.encoder import Encoder
from relaxd.llm.encoder_server import create_encoder_app
from relaxd.llm.engine import Engine
from relaxd.llm.server import create_app
from relaxd.llm.speculation import Speculation
from relaxd.llm.wire.failures import refuse_connection
from relaxd.loader.model import Model
from relaxd.loading import load

_BACKLOG = 1024
_DEFAULT_CACHE = CacheMemory()


@dataclass(frozen=True)
class Loras:
    """The low-rank adapters of a server: slots for `count`, those that it begins with, as
    `NAME=PATH`, and whether clients may load others from paths of this machine.
    """

    count: int
    modules: tuple[str, ...] = ()
    updates: bool = False

    def read_paths(self) -> dict[str, Path]:
        """The paths by name; raises InputError of a text that names none, or one twice."""
        paths: dict[str, Path] = {}
        for text in self.modules:
            name, equals, path = text.partition("=")
            if not (name and equals and path) or name in paths:
                raise InputError(
                    f"cannot read --lora-modules {text}",
                    hint="give each adapter once as NAME=PATH, as in sql=adapters/sql",
                )
            paths[name] = Path(path)
        return paths


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
    loras: Loras,
    threads: int | None,
    access: Access,
    max_connections: int,
    cache: CacheMemory = _DEFAULT_CACHE,
) -> None:
    """Load the bundle, listen, and answer until SIGINT or SIGTERM; raises InputError for an address
    that cannot be had.
    """
    access = replace(access, hosts=access.hosts | {address[0]})
    if access.key is None and not is_loopback(address[0]):
        print(
            f"relaxd llm: it asks for no key, and others can reach {address[0]}; set RELAXD_API_KEY"
            " or listen on 127.0.0.1",
            file=sys.stderr,
        )
    model = load(bundle, threads=threads)
    with ExitStack() as stack:
        adapters = loras.read_paths()
        if model.manifest.state is None:
            encoder = _open_encoder(model, bundle, tokenizer, speculate)
            called = name or model.manifest.name
            app = create_encoder_app(stack.enter_context(encoder), called, access)
        else:
            engine = Engine.open(
                bundle,
                tokenizer,
                model=model,
                threads=threads,
                sequences=sequences,
                capacity=capacity,
                waiting=waiting,
                sharing=sharing,
                speculate=None if speculate is None else Speculation.parse(speculate),
                draft=draft,
                adapters=loras.count,
                cache=cache,
            )
            stack.enter_context(engine)
            print(f"relaxd llm: {_describe_cache(engine)}", file=sys.stderr)
            for adapter, path in adapters.items():
                engine.load_adapter(adapter, path)
            called = name or model.manifest.name
            app = create_app(engine, called, access, lora_updates=loras.updates)
        listening = _listening(address)
        host, port = listening.getsockname()[:2]
        print(f"relaxd llm: http://{host}:{port}/v1", flush=True)
        if port_file is not None:
            port_file.write_text(str(port))
        prefer_latency()
        uvicorn.Server(config_of(app, max_connections)).run(sockets=[listening])


def _describe_cache(engine: Engine) -> str:
    pages = engine.cache_pages
    if pages is None:
        return "the KV cache has an array for each sequence, without pages"
    size = pages.limit * pages.block_bytes / (1 << 30)
    return f"the KV cache is in pages of {pages.block} tokens and takes up to {size:.2f} GiB"


def _open_encoder(
    model: Model, bundle: Path, tokenizer: Path | None, speculate: str | None
) -> Encoder:
    """An encoder of a bundle without state."""
    names = {spec.name for spec in model.inputs}
    if speculate is not None or any("past" in name for name in names):
        raise InputError(
            f"{model.manifest.name} has no state",
            hint="compile a decoder with the option `state=lifted`",
        )
    return Encoder.open(bundle, tokenizer, model=model)


def config_of(app: Starlette, max_connections: int) -> uvicorn.Config:
    """The server's settings: deadlines, and as many connections as there are descriptors for."""
    possible = descriptors.connections(descriptors.raise_limit())
    return uvicorn.Config(
        app,
        http=protocol(min(max_connections, possible), refuse_connection),
        log_level="warning",
        lifespan="off",
        ws="none",
        backlog=_BACKLOG,
        timeout_graceful_shutdown=5,
    )


def _listening(address: tuple[str, int]) -> socket.socket:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        # Whoever reads the port may connect before the server accepts.
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise InputError(
            f"cannot listen on {address[0]} port {address[1]}: {error.strerror or error}",
            hint="choose another with --host and --port",
        ) from error
    return listener
