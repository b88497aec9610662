from dataclasses import dataclass

import pytest

from artifacts.errors import StoreFull
from artifacts.quota import LimitedStore
from artifacts.store import put_file
from relaxd.contract.canonical import digest_of


@dataclass
class Counted:
    used: int = 0

    def take(self, amount, most):
        if self.used + amount > most:
            return False
        self.used += amount
        return True

    def add(self, amount):
        self.used += amount


def test_what_fits_is_stored_and_counted_once(blobs):
    usage = Counted()
    limited = LimitedStore(blobs, usage, quota=10)
    for _ in range(2):
        limited.put(b"12345")
    assert usage.used == 5
    limited.put(iter([b"67", b"890"]))
    assert usage.used == 10


@pytest.mark.parametrize("data", [b"123456", [b"123", b"456"]], ids=["bytes", "chunks"])
def test_what_exceeds_the_quota_is_refused_and_leaves_nothing(blobs, data):
    limited = LimitedStore(blobs, Counted(5), quota=10)
    with pytest.raises(StoreFull, match="no room"):
        limited.put(data)
    assert not blobs.has(digest_of(b"123456"))
    assert limited.put(b"12345").new


def test_the_disk_keeps_its_reserve(blobs, monkeypatch, tmp_path):
    limited = LimitedStore(blobs, Counted(), reserve=1000)
    monkeypatch.setattr(type(blobs), "free", lambda store: 1004)
    (tmp_path / "large").write_bytes(b"12345")
    with pytest.raises(StoreFull):
        put_file(limited, tmp_path / "large")
    assert limited.put(b"1234").new


def test_writers_at_once_share_the_room_between_them(blobs):
    usage = Counted()
    limited = LimitedStore(blobs, usage, quota=5)
    refused = []

    def beside():
        """The chunks of a blob, while another blob is put."""
        yield b"12"
        with pytest.raises(StoreFull) as raised:
            limited.put(b"abcd")
        refused.append(raised)
        yield b"345"

    assert limited.put(beside()).new
    assert refused
    assert usage.used == 5
    with pytest.raises(StoreFull):
        limited.put(b"x")
    assert usage.used == 5, "what was refused is not counted"


def test_the_disk_is_looked_at_anew_for_every_chunk(blobs, monkeypatch):
    limited = LimitedStore(blobs, Counted(), reserve=10)
    free = [100]
    monkeypatch.setattr(type(blobs), "free", lambda store: free[0])

    def beside():
        yield b"12"
        free[0] = 12  # what another writer left
        yield b"345"

    with pytest.raises(StoreFull):
        limited.put(beside())
