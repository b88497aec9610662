"""`relaxd gc` and `relaxd pin` against a service, and on a folder."""

import math
import time

from artifacts import open_store
from relaxd.contract.canonical import digest_of

ABSENT = digest_of(b"never stored")


def test_a_pin_is_made_listed_and_removed(served, api):
    digest = api.upload(b"weights to keep")
    created = served("pin", digest, "--why", "in production", "--days", "3", "--json")
    (pin,) = created.json["pins"]
    assert (pin["digest"], pin["why"]) == (digest, "in production")
    assert pin["expires_at"] > pin["created_at"]
    assert digest in served("pin", "--list").out
    assert served("pin", digest, "--remove").code == 0
    assert "no pins" in served("pin", "--list").out
    gone = served("pin", digest, "--remove")
    assert (gone.code, "is not pinned" in gone.err) == (2, True)


def test_what_is_not_there_cannot_be_pinned(served):
    refused = served("pin", ABSENT)
    assert (refused.code, "no blob" in refused.err) == (2, True)
    assert served("pin").code == 2


def test_a_service_collects_garbage(served, api):
    digest = api.upload(b"just uploaded")
    planned = served("gc", "--dry-run", "--json").json
    assert planned["dry_run"]
    assert digest not in planned["removed"]
    done = served("gc")
    assert (done.code, "removed 0 of" in done.out) == (0, True)
    assert api.services.store.blobs.has(digest)


def test_garbage_is_collected_in_a_folder(relaxd, tmp_path, monkeypatch):
    monkeypatch.setenv("RELAXD_GC_GRACE_S", "3600")
    blobs = open_store(tmp_path / "data" / "store").blobs
    digest = blobs.put(b"old").digest
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now + 7200)
    planned = relaxd("gc", "--data-dir", "data", "--dry-run")
    assert (planned.code, digest in planned.out) == (0, True)
    assert blobs.has(digest)
    assert relaxd("gc", "--data-dir", "data", "--json").json["removed"] == [digest]
    assert not blobs.has(digest)
    assert blobs.discard(digest, math.inf)


def test_a_folder_is_checked(relaxd, tmp_path):
    blobs = open_store(tmp_path / "data" / "store").blobs
    digest = blobs.put(b"sound").digest
    done = relaxd("check", "--data-dir", "data")
    assert (done.code, "1 sound blobs" in done.out) == (0, True)
    name = digest.removeprefix("sha256:")
    (tmp_path / "data/store/blobs/sha256" / name[:2] / name).write_bytes(b"Sound")
    result = relaxd("check", "--data-dir", "data", "--json")
    assert (result.code, result.json["corrupt"]) == (1, [digest])
    assert relaxd("check", "--data-dir", "data").code == 0, "what is bad was set aside"
