import pytest

from service.errors import DatabaseUnavailable
from service.usecases import readiness
from service.usecases.readiness import PROBE, Readiness


def test_the_answer_is_remembered_for_a_while(core, monkeypatch):
    asked = []
    usual = type(core.db).ping
    monkeypatch.setattr(type(core.db), "ping", lambda self: asked.append(usual(self)))
    asking = Readiness(core)
    for _ in range(3):
        asking.check()
    assert len(asked) == 1
    monkeypatch.setattr(readiness, "REMEMBERED_S", 0)
    for _ in range(2):
        Readiness(core).check()
    assert len(asked) == 3


def test_a_failure_is_remembered_too_and_nothing_is_left_in_the_data_folder(core, monkeypatch):
    core.db.ping()  # SQLite makes files of its own beside the database
    before = set(core.settings.data_dir.iterdir())
    Readiness(core).check()
    assert set(core.settings.data_dir.iterdir()) == before

    def away(self):
        raise DatabaseUnavailable("gone")

    monkeypatch.setattr(type(core.db), "ping", away)
    asking = Readiness(core)
    for _ in range(2):
        with pytest.raises(DatabaseUnavailable):
            asking.check()
    assert core.store.blobs.put(PROBE)
