"""The action cache: the first usable entry wins, and a dangling one is a miss."""

import math
from concurrent.futures import ThreadPoolExecutor

import pytest

from artifacts.cache import ActionCache
from artifacts.errors import InvalidDigest
from relaxd.contract.canonical import digest_of

KEY = digest_of(b"an action")


@pytest.fixture
def manifests(blobs):
    return [blobs.put(b"manifest %d" % number).digest for number in range(12)]


@pytest.fixture
def cache(blobs, records):
    return ActionCache(records, blobs.has)


def test_the_first_writer_wins(cache, manifests):
    assert cache.get(KEY) is None
    assert cache.put(KEY, manifests[0]) == manifests[0]
    assert cache.put(KEY, manifests[1]) == manifests[0]
    assert cache.get(KEY) == manifests[0]
    assert cache.get(digest_of(b"another action")) is None


def test_of_many_writers_at_once_one_wins(cache, manifests):
    with ThreadPoolExecutor(12) as pool:
        winners = set(pool.map(lambda manifest: cache.put(KEY, manifest), manifests))
    assert len(winners) == 1
    assert winners == {cache.get(KEY)}


def test_an_entry_without_its_manifest_is_a_miss_and_gives_way(cache, blobs, manifests):
    cache.put(KEY, manifests[0])
    blobs.discard(manifests[0], math.inf)
    assert cache.get(KEY) is None
    with ThreadPoolExecutor(11) as pool:
        winners = set(pool.map(lambda manifest: cache.put(KEY, manifest), manifests[1:]))
    assert winners == {cache.get(KEY)}
    assert winners < set(manifests[1:])


def test_keys_and_manifests_are_digests(cache, manifests):
    for key, manifest in ((KEY, "../escape"), ("../escape", manifests[0])):
        with pytest.raises(InvalidDigest):
            cache.put(key, manifest)
    with pytest.raises(InvalidDigest):
        cache.get("nonsense")
