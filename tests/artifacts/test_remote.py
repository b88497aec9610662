"""An object store's own errors leave as ours."""

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
