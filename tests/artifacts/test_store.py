"""The promises of every blob store."""

import itertools
import math
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from artifacts.errors import BlobCorrupt, BlobNotFound, DigestMismatch, InvalidDigest
from artifacts.store import CHUNK, Blob, put_file
from relaxd.contract.canonical import digest_of, is_digest

ABSENT = digest_of(b"never stored")
shared_store = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@shared_store
@given(data=st.binary(max_size=4096), cuts=st.lists(st.integers(0, 4096), max_size=4))
def test_what_is_put_is_read(blobs, data, cuts):
    edges = [0, *sorted(cuts), len(data)]
    blob = blobs.put(
        (data[start:stop] for start, stop in itertools.pairwise(edges)), expected=digest_of(data)
    )
    assert blob == blobs.put(data) == Blob(digest_of(data), len(data))
    assert blobs.has(blob.digest)
    assert blobs.size(blob.digest) == len(data)
    assert blobs.read(blob.digest) == data


@shared_store
@given(data=st.binary(max_size=200), start=st.integers(-5, 250), length=st.integers(-5, 250))
def test_a_part_is_that_part(blobs, data, start, length):
    digest = blobs.put(data).digest
    if 0 <= start <= min(start + length, len(data)):
        assert b"".join(blobs.open(digest, start, start + length)) == data[start : start + length]
        assert b"".join(blobs.open(digest, start)) == data[start:]
    else:
        with pytest.raises(ValueError, match="not within"):
            blobs.open(digest, start, start + length)


def test_a_large_blob_comes_whole_and_in_parts(blobs, tmp_path):
    data = bytes(range(256)) * (3 * CHUNK // 256) + b"tail"
    (tmp_path / "large").write_bytes(data)
    blob = put_file(blobs, tmp_path / "large")
    assert b"".join(blobs.open(blob.digest)) == data
    assert (
        b"".join(blobs.open(blob.digest, CHUNK - 3, 2 * CHUNK + 5))
        == data[CHUNK - 3 : 2 * CHUNK + 5]
    )


def test_a_wrong_digest_stores_nothing(blobs):
    with pytest.raises(DigestMismatch) as caught:
        blobs.put(b"content", expected=ABSENT)
    assert (caught.value.expected, caught.value.actual) == (ABSENT, digest_of(b"content"))
    assert not blobs.has(ABSENT)
    assert not blobs.has(digest_of(b"content"))


def test_a_source_that_fails_stores_nothing(blobs):
    def broken():
        yield b"half"
        raise ConnectionResetError("the sender went away")

    with pytest.raises(ConnectionResetError):
        blobs.put(broken())
    assert not blobs.has(digest_of(b"half"))


def test_an_absent_blob_is_a_typed_error(blobs):
    assert not blobs.has(ABSENT)
    assert blobs.discard(ABSENT, math.inf)
    for read in (blobs.size, blobs.read, blobs.open):
        with pytest.raises(BlobNotFound):
            read(ABSENT)


@pytest.mark.parametrize(
    "digest",
    [
        "",
        "sha256:",
        "sha256:../../etc/passwd",
        "sha256:" + "A" * 64,
        "md5:" + "0" * 32,
        "0" * 64,
        ABSENT + "\n",
    ],
)
def test_a_malformed_digest_is_refused(blobs, digest):
    discard = partial(blobs.discard, before=math.inf)
    for use in (blobs.has, blobs.size, blobs.read, blobs.open, blobs.touch, discard):
        with pytest.raises(InvalidDigest):
            use(digest)
    with pytest.raises(InvalidDigest):
        blobs.put(b"", expected=digest)


@pytest.mark.parametrize(
    "bad",
    [b"", b"content?", b"conten", b"content and more"],
    ids=["emptied", "changed", "cut", "extended"],
)
@pytest.mark.parametrize("bounds", [(0, None), (1, 3), (0, 0)], ids=["whole", "part", "nothing"])
def test_a_corrupt_blob_is_set_aside_and_can_be_put_again(backend, bad, bounds):
    digest = backend.blobs.put(b"content!").digest
    assert b"".join(backend.blobs.open(digest, 1, 3)) == b"on"
    backend.corrupt(digest, bad)
    with pytest.raises(BlobCorrupt):
        b"".join(backend.blobs.open(digest, *bounds))
    assert not backend.blobs.has(digest)
    assert backend.quarantined() == 1
    with pytest.raises(BlobNotFound):
        backend.blobs.read(digest)
    backend.blobs.put(b"content!")
    assert backend.blobs.read(digest) == b"content!"


def test_what_was_set_aside_is_reported_and_can_be_cleared(backend, caplog):
    digest = backend.blobs.put(b"content!").digest
    for _ in range(2):
        backend.corrupt(digest, b"content?")
        with pytest.raises(BlobCorrupt):
            backend.blobs.read(digest)
        backend.blobs.put(b"content!")
    assert [(blob.digest, blob.size) for blob in backend.blobs.quarantine()] == [(digest, 8)] * 2
    assert caplog.text.count(f"blob {digest} is corrupt") == 2
    assert backend.blobs.clear_quarantine(before=time.time() - 60) == 0
    assert backend.blobs.clear_quarantine(before=time.time() + 60) == 2
    assert list(backend.blobs.quarantine()) == []
    assert backend.blobs.read(digest) == b"content!"


def test_a_large_corrupt_blob_is_never_served_whole(backend):
    data = b"x" * (2 * CHUNK + 7)
    digest = backend.blobs.put(data).digest
    backend.corrupt(digest, data[:-1] + b"y")
    served = []
    with pytest.raises(BlobCorrupt):
        served.extend(backend.blobs.open(digest))
    assert sum(map(len, served)) < len(data)


def test_a_blob_is_discarded_unless_it_was_touched_meanwhile(blobs):
    digest = blobs.put(b"content").digest
    assert not blobs.discard(digest, time.time() - 60)
    assert blobs.touch(digest)
    assert blobs.discard(digest, math.inf)
    assert not blobs.has(digest)
    assert not blobs.touch(digest)
    assert blobs.put(b"content").new
    assert not blobs.put(b"content").new


def test_a_listing_has_every_blob_with_its_size_and_last_touch(blobs):
    began = time.time()
    sizes = {blobs.put(data).digest: len(data) for data in (b"", b"one", b"three")}
    listed = list(blobs.listing())
    assert {entry.digest: entry.size for entry in listed} == sizes
    assert all(began - 2 <= entry.touched <= time.time() + 2 for entry in listed)


def test_writers_of_one_digest_do_not_disturb_each_other(blobs):
    data = b"same" * 100_000
    with ThreadPoolExecutor(8) as pool:
        puts = [pool.submit(blobs.put, iter([data[:7], data[7:]])) for _ in range(24)]
        assert {put.result().digest for put in puts} == {digest_of(data)}
    assert blobs.read(digest_of(data)) == data


def test_records_are_replaced_only_as_they_were_read(records):
    assert records.get("a/b") is None
    assert records.swap("a/b", "one", None)
    assert not records.swap("a/b", "two", None)
    first = records.get("a/b")
    assert first.value == "one"
    assert records.swap("a/b", "two", first)
    assert not records.swap("a/b", "three", first)
    records.set("a/b", "four")
    records.set("a/c/d", "deeper")
    assert records.get("a/b").value == "four"
    assert (records.names("a"), records.names("a/c"), records.names("z")) == (["b"], ["d"], [])
    assert sorted(entry.name for entry in records.walk("a")) == ["a/b", "a/c/d"]
    assert all(entry.written > time.time() - 60 for entry in records.walk("a"))
    assert list(records.walk("z")) == []


def test_a_record_that_is_no_text_gives_way(backend):
    records, name = backend.records, "actions/aa/record"
    records.set(name, "value")
    backend.garble(name, b"sha256:\xff\x00")
    record = records.get(name)
    assert not is_digest(record.value)
    assert records.swap(name, "another", record)
    assert records.get(name).value == "another"


def test_a_record_is_removed_only_as_it_was_read(records):
    records.set("a/b", "one")
    assert not records.remove("a/b", "two")
    assert records.remove("a/b", "one")
    assert records.get("a/b") is None
    assert not records.remove("a/b", "one")


def test_many_are_discarded_but_for_those_that_were_touched_meanwhile(blobs):
    digests = [blobs.put(b"%d" % number).digest for number in range(40)]
    assert blobs.discard_many(digests, time.time() - 60) == set()
    gone = blobs.discard_many([*digests[:30], ABSENT], math.inf)
    assert gone == {*digests[:30], ABSENT}
    assert {blob.digest for blob in blobs.listing()} == set(digests[30:])
    assert [blobs.has(digest) for digest in digests] == [False] * 30 + [True] * 10


def test_the_last_touch_of_a_blob(blobs):
    assert blobs.last_touch(ABSENT) is None
    began = time.time()
    digest = blobs.put(b"content").digest
    assert began - 2 < blobs.last_touch(digest) < time.time() + 2
