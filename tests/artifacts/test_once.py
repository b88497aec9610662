"""A store that answers each question once."""

import pytest

from artifacts.errors import BlobNotFound
from artifacts.local import LocalStore
from artifacts.once import once
from relaxd.contract.canonical import digest_of

LOST = digest_of(b"lost")


class Counting:
    """Notes what the store is asked."""

    def __init__(self, blobs: LocalStore) -> None:
        self._blobs = blobs
        self.asked: list[str] = []

    def __getattr__(self, name: str):
        self.asked.append(name)
        return getattr(self._blobs, name)


@pytest.fixture
def counting(tmp_path):
    return Counting(LocalStore(tmp_path))


def test_each_question_is_asked_once(counting: Counting) -> None:
    digest = counting.put(b"content").digest
    counting.asked.clear()
    blobs = once(counting)
    for _ in range(3):
        assert blobs.touch(digest)
        assert blobs.has(digest)
        assert (blobs.size(digest), blobs.read(digest)) == (7, b"content")
    assert counting.asked == ["touch", "size", "read"]


def test_that_a_blob_is_there_does_not_keep_it(counting: Counting) -> None:
    digest = counting.put(b"content").digest
    blobs = once(counting)
    assert blobs.has(digest)
    counting.asked.clear()
    assert blobs.touch(digest)
    assert counting.asked == ["touch"]


def test_what_is_not_there_is_asked_for_again(counting: Counting) -> None:
    blobs = once(counting)
    for _ in range(2):
        assert not blobs.has(LOST)
        assert not blobs.touch(LOST)
        for act in (blobs.size, blobs.read):
            with pytest.raises(BlobNotFound):
                act(LOST)
    assert blobs.put(b"lost").digest == LOST
    assert blobs.has(LOST)
