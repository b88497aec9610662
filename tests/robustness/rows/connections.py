"""Rows about clients of the API that send much, slowly, or not to the end."""

import hashlib
import shutil
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
import pytest

from artifacts.store import hex_of
from relaxd.contract.canonical import digest_of
from relaxd.http.connections import TimedProtocol
from service.settings import Settings
from tests.robustness import roles
from tests.robustness.row import Outcome, Row, Run, p99
from tests.robustness.site import START_S, Site, until

MIB = 1 << 20
UPLOADS, AT_ONCE = 8, 2
PATIENCE_S = 5.0
MOST_P99_MS = 1000
"""Another client's upload and pull of a small blob, in one, while the row lasts."""
SERVED = f"others are served meanwhile with a p99 of at most {MOST_P99_MS} ms"
BOUNDS = {"MiB grown": 199, "p99 ms": MOST_P99_MS}
PROBE_S = 0.05
BURST, PROBES = 300, 10
WARM = 5
"""Requests after which all that requests use has been imported."""
GIVEN_UP_S = 60.0


def impatient_api(settings: Settings, log: Path, port_file: Path) -> None:
    """Run `roles.api` with less patience for slow clients, so that a row takes less time."""
    TimedProtocol.patience_s = PATIENCE_S
    roles.api(settings, log, port_file)


@dataclass
class Watched:
    """An API while something is done to it: how far its memory grew, and how others were served,
    `probes`, of which the first WARM were before.
    """

    url: str
    process: psutil.Process
    data: Path
    growth: int = 0
    probes: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def leftovers(self) -> list[Path]:
        """Files of uploads that are not blobs."""
        folders = (self.data / "uploads", self.data / "store" / "tmp")
        return [path for folder in folders if folder.is_dir() for path in folder.iterdir()]

    def address(self) -> tuple[str, int]:
        """Where to connect to."""
        url = httpx.URL(self.url)
        return url.host, int(url.port or 80)

    def wait_for_probes(self, number: int) -> None:
        """Wait until another client was served so many times more."""
        served = len(self.probes) + number
        until(lambda: len(self.probes) >= served, GIVEN_UP_S, "answers for another client")

    def outcome(self, **counts: float) -> Outcome:
        """Check the promises of every row here. The request on its way counts for those that were
        served meanwhile, later ones do not.
        """
        served = len(self.probes) + 1
        self.wait_for_probes(1)
        probes = self.probes[WARM:served]
        wrong = list(self.failures)
        try:
            until(lambda: not self.leftovers(), GIVEN_UP_S, "leftovers")
        except TimeoutError:
            wrong += [f"{path} was left" for path in self.leftovers()]
        figures = {
            "MiB grown": self.growth >> 20,
            "others served": len(probes),
            "p99 ms": round(1000 * p99(probes)),
            **counts,
        }
        return Outcome(not wrong, figures, "\n".join(wrong[:20]))


@contextmanager
def watch(run: Run) -> Iterator[Watched]:
    """An API process of its own; another client is served all along."""
    settings = Settings(data_dir=run.folder / "data")
    site = Site(run.folder, settings)
    try:
        process, url = site.api(impatient_api)
        api = Watched(url, psutil.Process(process.pid), settings.data_dir)
        stop = threading.Event()
        prober = threading.Thread(target=_probe, args=(api, stop))
        prober.start()
        try:
            until(lambda: len(api.probes) >= WARM, START_S, "answers for another client")
            yield api
        finally:
            stop.set()
            prober.join()
    finally:
        site.stop()


def _probe(api: Watched, stop: threading.Event) -> None:
    """Upload and read a small blob again and again, and look at the API's memory."""
    least: int | None = None
    with httpx.Client(base_url=api.url, timeout=30) as http:
        number = 0
        while not stop.wait(PROBE_S):
            data, number = b"%d" % number, number + 1
            began = time.monotonic()
            try:
                http.post(_slot(data), content=data).raise_for_status()
                http.get(f"/v2/relaxd/x/blobs/{digest_of(data)}").raise_for_status()
            except httpx.HTTPError as error:
                api.failures.append(f"another client was not served: {error!r}")
            api.probes.append(time.monotonic() - began)
            resident = api.process.memory_info().rss
            least = resident if number == WARM else least
            api.growth = max(api.growth, resident - (least or resident))


def _slot(data: bytes) -> str:
    return f"/v2/relaxd/x/blobs/uploads/?digest={digest_of(data)}"


def large_uploads(run: Run) -> Outcome:
    """Uploads of `count` MiB of zeros behind a few bytes of their own; each is removed at once."""
    free = shutil.disk_usage(run.folder).free
    if free < (needed := 3 * AT_ONCE * run.count * MIB):
        pytest.skip(f"{needed >> 30} GiB of disk are needed, {free >> 30} are free")
    with watch(run) as api, ThreadPoolExecutor(AT_ONCE) as pool:
        done = list(pool.map(lambda number: _upload(api, number, run.count), range(UPLOADS)))
        return api.outcome(uploaded=sum(done))


def _upload(api: Watched, number: int, size: int) -> bool:
    content = hashlib.sha256()
    for chunk in _chunks(number, size):
        content.update(chunk)
    digest = f"sha256:{content.hexdigest()}"
    headers = {"Content-Length": str(size * MIB)}
    with httpx.Client(base_url=api.url, timeout=600) as http:
        position = f"/v2/relaxd/x/blobs/uploads/?digest={digest}"
        answer = http.post(position, content=_chunks(number, size), headers=headers)
    if answer.status_code != 201:
        api.failures.append(f"upload {number}: {answer.status_code} {answer.text[:300]}")
        return False
    name = hex_of(digest)
    path = api.data / "store" / "blobs" / "sha256" / name[:2] / name
    if path.stat().st_size != size * MIB:
        api.failures.append(f"upload {number} has {path.stat().st_size} bytes")
    path.unlink()
    return True


def _chunks(number: int, size: int) -> Iterator[bytes]:
    zeros = bytes(MIB)
    yield number.to_bytes(8, "little") + zeros[8:]
    for _ in range(size - 1):
        yield zeros


def slow_clients(run: Run) -> Outcome:
    """Clients that send a byte a second of a header, of a body, or nothing; all are closed."""
    starts = (
        b"",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
        _head_of_blob(),
    )
    with watch(run) as api:
        clients = [socket.create_connection(api.address(), timeout=30) for _ in range(run.count)]
        for number, client in enumerate(clients):
            client.sendall(starts[number % len(starts)])
            client.setblocking(False)
        waiting, began = dict(enumerate(clients)), time.monotonic()
        while waiting and time.monotonic() - began < GIVEN_UP_S:
            for number, client in list(waiting.items()):
                if _is_closed(client, drips=number % len(starts) != 0):
                    client.close()
                    del waiting[number]
            time.sleep(1)
        api.failures += [f"{len(waiting)} slow clients stay"] if waiting else []
        for client in waiting.values():
            client.close()
        return api.outcome(closed=run.count - len(waiting))


def _is_closed(client: socket.socket, *, drips: bool) -> bool:
    try:
        while client.recv(4096):
            continue
    except BlockingIOError:
        pass
    except OSError:
        return True
    else:
        return True
    try:
        return drips and client.send(b"x") != 1
    except OSError:
        return True


def aborted_uploads(run: Run) -> Outcome:
    """Uploads whose clients vanish after a part of the body, BURST without pause; between bursts
    another client is served PROBES times.
    """
    kinds: tuple[Callable[[], bytes], ...] = (_head_of_blob, _head_of_form)
    with watch(run) as api:
        for number in range(run.count):
            if number % BURST == 0:
                api.wait_for_probes(PROBES)
            with socket.create_connection(api.address(), timeout=30) as client:
                client.sendall(kinds[number % 2]() + bytes(number * 9973 % (3 * MIB)))
                # Closing resets the connection.
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return api.outcome(aborted=run.count)


def _head_of_blob() -> bytes:
    position = f"/v2/relaxd/x/blobs/uploads/?digest={digest_of(b'never sent')}"
    head = "Host: localhost\r\nContent-Length: 10000000"
    return f"POST {position} HTTP/1.1\r\n{head}\r\n\r\n".encode()


def _head_of_form() -> bytes:
    head = (
        "Host: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\n"
        "Content-Length: 10000000"
    )
    part = 'Content-Disposition: form-data; name="model"; filename="m"'
    return f"POST /v1/compile HTTP/1.1\r\n{head}\r\n\r\n--b\r\n{part}\r\n\r\n".encode()


ROWS = (
    Row(
        "large-uploads",
        "8 uploads of so many MiB, two at a time: the API's memory grows by less than 200 MiB, no "
        f"file is left, and {SERVED}",
        4096,
        large_uploads,
        minimums={"others served": 0.02},
        maximums=BOUNDS,
    ),
    Row(
        "slow-clients",
        f"slow clients are closed, take less than 200 MiB of memory, and {SERVED}",
        1000,
        slow_clients,
        f"Patience is {PATIENCE_S:g} s in place of 30.",
        minimums={"others served": 0.01},
        maximums=BOUNDS,
    ),
    Row(
        "aborted-uploads",
        f"uploads that break off leave no file, take less than 200 MiB of memory, and {SERVED}",
        1000,
        aborted_uploads,
        minimums={"others served": 0.02},
        maximums=BOUNDS,
    ),
)
