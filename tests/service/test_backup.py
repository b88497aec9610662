"""A copy of the database, then one of the store, made while work goes on, is a whole service."""

import shutil
import sqlite3
import subprocess
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from artifacts import checking, open_store
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import State
from service.core import Core
from service.db.engine import Database
from service.db.upgrade import upgrade
from service.jobs import Jobs
from service.settings import Settings
from service.usecases.builds import claiming
from service.usecases.store import collecting
from tests.service.fakes import FakeDoorbell
from tests.service.servers import _postgres_programs, fresh_database


@pytest.fixture
def restored_url(request, database_url, tmp_path):
    """Where the database is restored to: an empty one beside the first."""
    if database_url.startswith("sqlite"):
        yield f"sqlite:///{tmp_path / 'restored' / 'jobs.sqlite'}"
    else:
        cluster = request.getfixturevalue("postgres")
        with fresh_database(cluster, f"test_{uuid4().hex}") as url:
            yield url


def copy_database(source, to):
    """Follow docs/howto/run-the-service.md."""
    if source.startswith("sqlite"):
        one, two = (urlsplit(url).path.removeprefix("/") for url in (source, to))
        with sqlite3.connect(f"/{one}") as live, sqlite3.connect(f"/{two}") as copy:
            live.backup(copy)
        live.close()
        copy.close()
        return
    programs = _postgres_programs()
    dump = [programs / "pg_dump", "--format=custom", "--no-owner", source]
    created = subprocess.run(dump, check=True, capture_output=True).stdout
    restore = [str(programs / "pg_restore"), "--no-owner", "--exit-on-error", f"--dbname={to}"]
    subprocess.run(restore, input=created, check=True, capture_output=True)


def copy_store(source: Path, to: Path):
    for part in ("records", "blobs"):
        shutil.copytree(source / part, to / part)


def test_a_backup_made_under_load_is_whole(
    core, jobs, model, answer, clock, database_url, restored_url, compiler, tmp_path
):
    done = jobs.submit(model, CompileRequest.of(targets=("x86-64-v3",)))
    answer(done.builds[0].id)
    waiting = jobs.submit(model, CompileRequest.of(targets=("aarch64",)))
    folder = tmp_path / "restored"
    folder.mkdir()

    copy_database(database_url, restored_url)
    answer(waiting.builds[0].id)  # ends between the two copies
    later = jobs.submit(core.store.blobs.put(b"another").digest, CompileRequest.of())
    collecting.run(core)
    copy_store(tmp_path / "store", folder / "store")

    settings = Settings(data_dir=folder, database_url=restored_url, lease_s=30)
    db = Database(settings.database)
    upgrade(db)
    twin = Core(settings, db, open_store(settings.store), compiler, FakeDoorbell(), clock)
    result = checking.check(twin.store, lambda: collecting.roots(twin))
    assert (result.corrupt, result.missing) == ([], [])
    assert result.blobs == len(list(core.store.blobs.listing()))
    assert Jobs(twin).get(done.id) == jobs.get(done.id)
    assert later.id not in [job.id for job in Jobs(twin).list()]
    assert Jobs(twin).get(waiting.id).state is State.QUEUED
    assert claiming.take(twin, waiting.builds[0].id, "worker") is not None
    collecting.run(twin)
    again = checking.check(twin.store, lambda: collecting.roots(twin))
    assert (again.corrupt, again.missing) == ([], [])
    db.close()


def test_a_store_copied_before_the_database_lacks_what_came_between(core, jobs, tmp_path):
    """Why the order is as it is."""
    copy_store(tmp_path / "store", tmp_path / "early")
    jobs.submit(core.store.blobs.put(b"a late model").digest, CompileRequest.of())
    early = open_store(tmp_path / "early")
    assert checking.check(early, lambda: collecting.roots(core)).missing != []
