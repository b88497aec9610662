"""`relaxd serve`, `relaxd api` and `relaxd worker`: the service's processes."""

from pathlib import Path
from typing import Annotated

import typer

from relaxd.client import extras

Host = Annotated[str, typer.Option("--host", help="The address to listen on.")]
Port = Annotated[
    int, typer.Option("--port", min=0, max=65535, help="The port to listen on; 0 takes a free one.")
]
PortFile = Annotated[
    Path | None,
    typer.Option(
        "--port-file",
        metavar="FILE",
        help="Write the port to this file once the service is ready.",
        show_default=False,
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        envvar="RELAXD_DATA_DIR",
        help="The folder for all data.",
        show_default="~/.local/share/relaxd",
    ),
]
TlsCert = Annotated[
    Path | None,
    typer.Option(
        "--tls-cert",
        metavar="PEM",
        envvar="RELAXD_TLS_CERT",
        help="Serve HTTPS with this certificate.",
        show_default=False,
    ),
]
TlsKey = Annotated[
    Path | None,
    typer.Option(
        "--tls-key",
        metavar="PEM",
        envvar="RELAXD_TLS_KEY",
        help="The certificate's key.",
        show_default=False,
    ),
]
Workers = Annotated[
    int,
    typer.Option(
        "--workers", min=0, max=64, help="Worker processes; each compiles one model at a time."
    ),
]


def serve_command(
    host: Host = "127.0.0.1",
    port: Port = 8484,
    data_dir: DataDir = None,
    workers: Workers = 1,
    port_file: PortFile = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
) -> None:
    """Run the whole service here: API, workers and storage, with no server to install.

    Settings come from RELAXD_* variables; RELAXD_TOKEN sets the token that clients must send.
    """
    serve = extras.load("service.processes.serve", extra="server")
    raise typer.Exit(
        serve.serve(
            host=host,
            port=port,
            data_dir=data_dir,
            workers=workers,
            port_file=port_file,
            tls_cert=tls_cert,
            tls_key=tls_key,
        )
    )


def api_command(
    host: Host = "127.0.0.1",
    port: Port = 8484,
    port_file: PortFile = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
) -> None:
    """Run the API alone, beside workers on other machines.

    RELAXD_DATABASE_URL, RELAXD_BROKER_URL and RELAXD_STORE_URL name the stores that they share.
    """
    serve = extras.load("service.processes.serve", extra="api")
    raise typer.Exit(
        serve.serve(
            host=host,
            port=port,
            data_dir=None,
            workers=0,
            port_file=port_file,
            tls_cert=tls_cert,
            tls_key=tls_key,
        )
    )


def worker_command(
    once: Annotated[
        bool,
        typer.Option("--once", help="End after one build, or if none comes within 30 s."),
    ] = False,
) -> None:
    """Run one worker; settings as for [bold]relaxd api[/]."""
    serve = extras.load("service.processes.serve", extra="server")
    raise typer.Exit(serve.work(once=once))
