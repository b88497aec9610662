"""An object store's own errors leave as ours."""

import math
import threading
import time
from typing import Any

import obstore
import pytest
from obstore.exceptions import GenericError

from artifacts.errors import BlobNotFound, StorageFailed
from artifacts.remote import ObjectStore, RemoteRecords, connect
from relaxd.contract.canonical import digest_of

DIGEST = digest_of(b"x")


@pytest.fixture
def _away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every operation fails as it does when the service does not answer."""

    def away(*arguments: Any, **options: Any) -> None:
        raise GenericError("no route to host")

    for name in ("get", "put", "head", "delete", "list", "list_with_delimiter"):
        monkeypatch.setattr(obstore, name, away)


@pytest.mark.usefixtures("_away")
@pytest.mark.parametrize("use", ["has", "size", "read", "open", "touch"])
def test_a_store_that_does_not_answer(use: str) -> None:
    blobs = ObjectStore("memory://")
    with pytest.raises(StorageFailed, match="no route to host") as caught:
        getattr(blobs, use)(DIGEST)
    assert "credentials" in (caught.value.hint or "")


@pytest.mark.usefixtures("_away")
def test_nothing_is_put_or_recorded_either() -> None:
    handle = connect("memory://")
    records = RemoteRecords(handle)
    for use in (
        lambda: ObjectStore(handle).put(b"x"),
        lambda: records.get("a/b"),
        lambda: records.set("a/b", "one"),
        lambda: records.swap("a/b", "one", None),
    ):
        with pytest.raises(StorageFailed):
            use()


def test_settings_that_cannot_be_used() -> None:
    with pytest.raises(StorageFailed, match="cannot open the store s3://"):
        connect("s3://")


def test_what_is_not_there_is_no_failure() -> None:
    blobs = ObjectStore("memory://")
    assert not blobs.has(DIGEST)
    assert not blobs.touch(DIGEST)
    with pytest.raises(BlobNotFound):
        blobs.size(DIGEST)


@pytest.mark.parametrize("use", ["put", "touch"])
def test_whoever_meets_a_blob_that_is_being_deleted_waits_and_then_looks(
    monkeypatch: pytest.MonkeyPatch, use: str
) -> None:
    """The other's call comes between the look at the blob's last touch and its deletion."""
    handle = connect("memory://")
    collector, client = ObjectStore(handle), ObjectStore(handle)
    collector.put(b"x")
    waiting, results = threading.Event(), []
    calls = {"put": lambda: client.put(b"x").new, "touch": lambda: client.touch(DIGEST)}
    thread = threading.Thread(target=lambda: results.append(calls[use]()))
    delete, sleep = obstore.delete, time.sleep

    def late(store: Any, paths: str | list[str]) -> None:
        if f"blobs/sha256/{DIGEST.removeprefix('sha256:')}" in paths:
            thread.start()
            assert waiting.wait(10)
        delete(store, paths)

    def pause(seconds: float) -> None:
        waiting.set()
        sleep(seconds)

    monkeypatch.setattr(obstore, "delete", late)
    monkeypatch.setattr("artifacts.remote.time.sleep", pause)
    assert collector.discard(DIGEST, math.inf)
    thread.join(10)
    assert results == [use == "put"]
    assert client.has(DIGEST) == (use == "put")
    assert {path["path"] for chunk in obstore.list(handle) for path in chunk} <= {
        f"{folder}/sha256/{DIGEST.removeprefix('sha256:')}" for folder in ("blobs", "touched")
    }


def test_a_touch_gives_up_on_a_blob_that_stays_doomed_until_a_listing_frees_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handle = connect("memory://")
    store = ObjectStore(handle)
    store.put(b"x")
    obstore.put(handle, f"doomed/sha256/{DIGEST.removeprefix('sha256:')}", b"")
    monkeypatch.setattr("artifacts.remote.PATIENCE_S", 0.1)
    fresh = ObjectStore(handle)
    with pytest.raises(StorageFailed, match="being removed"):
        fresh.touch(DIGEST)
    assert not fresh.discard(DIGEST, math.inf), "the mark is another's"
    list(fresh.listing())
    assert not fresh.discard(DIGEST, math.inf), "the mark is young"
    monkeypatch.setattr("artifacts.remote.TAKE_OVER_S", -1.0)
    list(fresh.listing())
    assert fresh.touch(DIGEST)


def test_what_was_touched_just_now_costs_no_request_and_a_read_costs_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, requests = ObjectStore("memory://"), []
    store.put(b"x")
    for name in ("get", "put", "head", "delete"):
        real = getattr(obstore, name)

        def noted(*arguments: Any, name: str = name, real: Any = real, **options: Any) -> Any:
            requests.append(name)
            return real(*arguments, **options)

        monkeypatch.setattr(obstore, name, noted)
    assert store.touch(DIGEST)
    assert requests == []
    assert store.read(DIGEST) == b"x"
    assert requests == ["get"]
    store.put(b"y")
    assert len(requests) == 6


def test_a_touch_finds_out_that_its_own_process_has_removed_the_blob() -> None:
    store = ObjectStore("memory://")
    store.put(b"x")
    assert store.discard(DIGEST, math.inf)
    assert not store.touch(DIGEST)
