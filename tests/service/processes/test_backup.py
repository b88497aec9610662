"""`relaxd backup` and `relaxd restore`, as docs/howto/run-the-service.md says."""

import pytest
from typer.testing import CliRunner

from artifacts import checking, open_store
from relaxd.cli.app import app
from relaxd.contract.request import CompileRequest
from service.core import Core
from service.db.engine import Database
from service.jobs import Jobs
from service.processes import backup
from service.settings import Settings
from service.usecases.store import collecting
from tests.service.fakes import FakeDoorbell


@pytest.fixture(params=["sqlite"])
def database(request):
    """Only of SQLite: PostgreSQL has tools of its own."""
    return request.param


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in ("RELAXD_DATABASE_URL", "RELAXD_STORE_URL", "RELAXD_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)


def relaxd(*arguments):
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(one) for one in arguments])


def test_a_backup_is_restored_whole(core, jobs, model, answer, clock, compiler, tmp_path):
    done = jobs.submit(model, CompileRequest.of(targets=("x86-64-v3",)))
    answer(done.builds[0].id)
    copy, restored = tmp_path / "backup", tmp_path / "restored"
    first = relaxd("backup", copy, "--data-dir", tmp_path)
    assert (first.exit_code, first.stdout.startswith("copied ")) == (0, True), first.output
    later = jobs.submit(core.store.blobs.put(b"another").digest, CompileRequest.of())
    again = backup.back_up(tmp_path, copy)
    assert again["files"] < int(first.stdout.split()[1])
    jobs.submit(core.store.blobs.put(b"too late").digest, CompileRequest.of())

    ended = relaxd("restore", copy, "--data-dir", restored)
    assert ended.exit_code == 0, ended.output
    assert "0 corrupt, 0 missing" in ended.stdout
    settings = Settings(data_dir=restored, lease_s=30)
    db = Database(settings.database)
    twin = Core(settings, db, open_store(settings.store), compiler, FakeDoorbell(), clock)
    assert checking.check(twin.store, lambda: collecting.roots(twin)).missing == []
    assert Jobs(twin).get(done.id) == jobs.get(done.id)
    assert {job.id for job in Jobs(twin).list()} == {done.id, later.id}
    db.close()


def test_a_backup_forgets_what_the_service_has_removed(core, jobs, tmp_path):
    digest = core.store.blobs.put(b"soon gone").digest
    backup.back_up(tmp_path, tmp_path / "backup")
    (copied,) = (tmp_path / "backup").rglob(digest.partition(":")[2])
    next((tmp_path / "store").rglob(copied.name)).unlink()
    backup.back_up(tmp_path, tmp_path / "backup")
    assert not copied.exists()
    assert not list((tmp_path / "backup").rglob("*.partial"))


def test_a_damaged_backup_is_noticed(core, jobs, model, tmp_path):
    jobs.submit(model, CompileRequest.of())
    copy = tmp_path / "backup"
    backup.back_up(tmp_path, copy)
    next(copy.rglob(model.partition(":")[2])).write_bytes(b"x")
    ended = relaxd("restore", copy, "--data-dir", tmp_path / "restored")
    assert (ended.exit_code, model in ended.stdout) == (1, True)


def test_what_is_refused(core, jobs, tmp_path, monkeypatch):
    backup.back_up(tmp_path, tmp_path / "backup")
    used = relaxd("restore", tmp_path / "backup", "--data-dir", tmp_path)
    assert "already holds the data of a service" in used.output
    empty = relaxd("restore", tmp_path / "nothing", "--data-dir", tmp_path / "restored")
    assert "is not a backup" in empty.output
    unused = relaxd("backup", tmp_path / "other", "--data-dir", tmp_path / "unused")
    assert "does not hold the data of a service" in unused.output
    monkeypatch.setenv("RELAXD_DATABASE_URL", "postgresql://localhost/relaxd")
    elsewhere = relaxd("backup", tmp_path / "other", "--data-dir", tmp_path)
    assert "the data is not in one folder" in elsewhere.output
    assert {one.exit_code for one in (used, empty, unused, elsewhere)} == {1}
