"""A service on a disk that fills up and fails: `python -m tests.robustness.small_disk COUNT SEED
FOLDER`, in a mount namespace of its own, prints what became of its uploads as JSON.
"""

import errno
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import httpx

from artifacts.errors import BlobNotFound
from relaxd.contract.canonical import digest_of
from service.bootstrap import Services, build
from service.db import recovery
from service.settings import Settings
from tests.service.fakes import FakeCompiler
from tests.service.live import listening, quiet

MIB = 1 << 20
DISK_MIB = 128
RESERVE_MIB = 4
STEPS = 50
CALLS = ("fsync", "rename", "utime", "mkdir")
TYPED = {507: ("store.full", "UNKNOWN"), 503: ("store.unavailable", "database.unavailable")}


class Trial:
    """Uploads to a service whose every file is on `disk`, by a client that never tidies up.

    session: the upload that the client was told of last, where it had no end; acknowledged: how
    many bytes of it the service has said that it has.
    """

    def __init__(self, disk: Path, services: Services, http: httpx.Client, seed: int) -> None:
        self.disk, self.services, self.http = disk, services, http
        self.draw = random.Random(seed)
        self.tally: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.session, self.acknowledged = "", 0

    def run(self, number: int, leaving: int) -> None:
        """One upload while the disk fails, or has so many MiB left, where a collection removes what
        the client left; and again with room.
        """
        near = self.draw.randrange((leaving + 2) * MIB)
        data = self.draw.randbytes(self.draw.choice([1000, MIB, near, near]))
        send = self.draw.choice([self._at_once, self._in_chunks, self._as_form])
        if number % 4 == 3:
            with failing(self.draw.choice(CALLS), self.draw.randrange(4)):
                self._judge(number, data, send)
            self._collect(number)
        else:
            ballast = self.disk / "ballast"
            fill(ballast, leaving)
            self._judge(number, data, send)
            self._collect(number)
            ballast.unlink()
        answer = send(data)
        if answer.status_code not in (200, 201, 202):
            self.wrong.append(f"run {number}: no recovery: {answer.status_code} {answer.text}")
        self._collect(number)
        self._empty()

    def _judge(self, number: int, data: bytes, send: Callable[[bytes], httpx.Response]) -> None:
        answer = send(data)
        self.tally[str(answer.status_code)] += 1
        stored = answer.status_code in (200, 201, 202)
        if not stored and answer.status_code not in (503, 507):
            self.wrong.append(f"run {number}: {answer.status_code} {answer.text[:500]}")
        try:
            full = digest_of(self.services.store.blobs.read(digest_of(data))) == digest_of(data)
        except BlobNotFound:
            full = not stored
        if not full:
            self.wrong.append(f"run {number}: {answer.status_code}, and the blob is not whole")
        left = [path for path in self._leftovers() if not self._is_resumable(path)]
        if left:
            self.wrong.append(f"run {number}: {answer.status_code}, and left {left}")

    def _leftovers(self) -> Iterator[Path]:
        for folder in ("data/store/tmp", "data/uploads", "tmp"):
            yield from filter(Path.is_file, (self.disk / folder).iterdir())

    def _is_resumable(self, path: Path) -> bool:
        """True for the client's session if it holds what was acknowledged and no more."""
        is_own = path.parent.name == "uploads" and path.name == self.session
        return is_own and path.stat().st_size == self.acknowledged

    def _collect(self, number: int) -> None:
        """Collect as if the client had been silent for long, on a disk that is as full as it was:
        no session may be left.
        """
        session = self.disk / "data" / "uploads" / self.session
        if session.is_file():
            self.tally["abandoned"] += 1
            os.utime(session, (0, 0))
        answer = self.http.post("/v1/gc", json={})
        if answer.status_code != 200:
            self.wrong.append(f"run {number}: no collection: {answer.status_code} {answer.text}")
        if left := list(self._leftovers()):
            self.wrong.append(f"run {number}: the collection left {left}")

    def _at_once(self, data: bytes) -> httpx.Response:
        where = f"/v2/relaxd/x/blobs/uploads/?digest={digest_of(data)}"
        return self.http.post(where, content=data)

    def _in_chunks(self, data: bytes) -> httpx.Response:
        answer = self.http.post("/v2/relaxd/x/blobs/uploads/")
        position = answer.headers.get("Location", "")
        self.session, self.acknowledged = position.rpartition("/")[2], 0
        for start in range(0, len(data), 4 * MIB):
            if answer.status_code != 202:
                break
            chunk = data[start : start + 4 * MIB]
            answer = self.http.patch(position, content=chunk)
            self.acknowledged += len(chunk) if answer.status_code == 202 else 0
        if answer.status_code == 202:
            answer = self.http.put(position, params={"digest": digest_of(data)})
        return answer

    def _as_form(self, data: bytes) -> httpx.Response:
        return self.http.post("/v1/compile", files={"model": ("m.onnx", data)})

    def _empty(self) -> None:
        for stored in list(self.services.store.blobs.listing()):
            self.services.store.blobs.discard(stored.digest, before=float("inf"))


def fill(path: Path, leaving: int) -> None:
    """Take what the disk has but for so many MiB."""
    free = os.statvfs(path.parent).f_bavail * os.statvfs(path.parent).f_frsize
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, free - leaving * MIB))


@contextmanager
def failing(name: str, allowed: int) -> Iterator[None]:
    """The system call fails with EIO once so many have passed."""
    real, left = getattr(os, name), [allowed]

    def call(*arguments: object, **options: object) -> object:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(*arguments, **options)

    with patch.object(os, name, call):
        yield


def main() -> None:
    count, seed, disk = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    options = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(disk)]
    subprocess.run(options, check=True)
    (disk / "tmp").mkdir()
    tempfile.tempdir = str(disk / "tmp")
    settings = Settings(data_dir=disk / "data", store_reserve_mb=RESERVE_MIB)
    services = build(settings, compiler=FakeCompiler())
    recovery.set_aside(settings)
    with quiet(), listening(services) as url, httpx.Client(base_url=url, timeout=60) as http:
        trial = Trial(disk, services, http, seed)
        for number in range(count):
            trial.run(number, number * max(1, STEPS // count) % STEPS)
    services.close()
    print(json.dumps({"tally": trial.tally, "wrong": trial.wrong}))


if __name__ == "__main__":
    main()
