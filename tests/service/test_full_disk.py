"""A disk that is full to the last block: a tenant does not fill it, and where something else does,
`relaxd gc` and cancelling still work, from space that nothing else gets.
"""

import contextlib
import os
import random
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import select

from relaxd.contract.canonical import digest_of
from service.db import recovery
from service.db.schema import builds
from service.processes import tidy
from service.usecases.store import holdings
from tests.service.tenancy import OPERATOR, House, house

MIB = 1 << 20
DISK, RESERVE = 48, 16


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file system of DISK MiB, which temporary files are on, too."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", f"size={DISK}m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mounted, capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    for name in ("tmp", "data"):
        (folder / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "tmp"))
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def guarded(disk: Path) -> Iterator[House]:
    with house(disk / "data", store_reserve_mb=RESERVE) as running:
        recovery.set_aside(running.core.settings)
        yield running


def fill(path: Path) -> None:
    """Take every block that is left."""
    while shutil.disk_usage(path.parent).free:  # threads of the service may give some back
        for size in (MIB, 4096, 1):
            with path.open("ab", buffering=0) as file, contextlib.suppress(OSError):
                while file.write(bytes(size)):
                    continue


def test_a_tenant_leaves_the_reserve(disk: Path, guarded: House) -> None:
    client = guarded.client("a")
    uploads = "/v2/a/x/blobs/uploads/"

    def attack(seed: int) -> int:
        data = random.Random(seed).randbytes(2 * MIB)
        match seed % 4:
            case 0:
                return client.post(f"{uploads}?digest={digest_of(data)}", content=data).status_code
            case 1:
                return client.post("/v1/compile", files={"model": ("m", data)}).status_code
        begun = client.post(uploads)
        if begun.status_code != 202:
            return begun.status_code
        content = data if seed % 4 == 2 else iter([data[:MIB], data[MIB:]])
        return client.patch(begun.headers["Location"], content=content).status_code

    with ThreadPoolExecutor(4) as threads:
        statuses = set(threads.map(attack, range(80)))
    assert statuses <= {201, 202, 507}
    assert 507 in statuses
    # Rows of the database take some of the reserve, and so may a chunk of each of four writers.
    assert shutil.disk_usage(disk).free > (RESERVE - 6) * MIB


def test_room_is_made_on_a_disk_without_any(disk: Path, guarded: House) -> None:
    client, operator = guarded.client("a"), guarded.with_token(OPERATOR)
    settings, space = guarded.core.settings, disk / "data" / recovery.FILE
    assert space.stat().st_size == settings.recovery_bytes == RESERVE * MIB // 4
    started, may_end = threading.Event(), threading.Event()

    def work(cancelled: Callable[[], bool]) -> None:
        started.set()
        may_end.wait(60)

    guarded.live.compiler.behaviour = work
    job = client.post("/v1/compile", files={"model": ("m", b"a model")}).json()["id"]
    assert started.wait(20)
    fill(disk / "ballast")
    refused = client.post("/v1/compile", files={"model": ("m", b"another")})
    assert (refused.status_code, refused.json()["retryable"]) == (507, True)
    for _ in range(3):
        answer = operator.post("/v1/gc", json={})
        assert answer.status_code == 200, answer.text
        fill(disk / "ballast")
    assert client.post(f"/v1/jobs/{job}:cancel").status_code == 200
    with guarded.core.reading() as tx:
        assert tx.connection.scalar(select(builds.c.cancel_requested))
    may_end.set()
    fill(disk / "ballast")
    assert "blobs" in tidy.collect(settings.data_dir, dry_run=False)
    (disk / "ballast").unlink()
    recovery.set_aside(settings)
    assert settings.recovery_bytes <= space.stat().st_size
    assert client.post("/v1/compile", files={"model": ("m", b"another")}).status_code == 202


def test_new_jobs_leave_room_for_those_that_are_there(disk: Path, guarded: House) -> None:
    client = guarded.client("a")
    ballast = disk / "ballast"
    free = shutil.disk_usage(disk).free
    ballast.write_bytes(bytes(free - RESERVE * MIB // 2 + MIB))
    digest = guarded.core.store.blobs.inner.put(b"a model").digest

    holdings.hold(guarded.core, "a", {digest: 7})
    refused = client.post("/v1/jobs", json={"model": digest, "targets": ["native"]})
    assert (refused.status_code, refused.json()["code"]) == (507, "store.full")
    ballast.unlink()
    answer = client.post("/v1/jobs", json={"model": digest, "targets": ["native"]})
    assert answer.status_code == 202, answer.text
