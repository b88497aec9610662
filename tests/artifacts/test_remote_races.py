"""Collections beside puts and touches on a real S3 server, which all talk to it at once."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from artifacts.remote import ObjectStore, connect
from relaxd.contract.canonical import digest_of

pytestmark = pytest.mark.scaled

SECONDS = 6.0
AGE_S = 3.0
PROMISED_S = 1.0
"""What was put or touched stays for `AGE_S`, less the second to which S3 rounds and a margin."""
CONTENTS = [b"content %d" % number for number in range(6)]


def client(url: str, seed: int, until: float) -> int:
    """Put and touch at random, each time on a connection that remembers nothing; how often a touch
    found a blob.
    """
    chance, touches = random.Random(seed), 0
    while time.monotonic() < until:
        store, content = ObjectStore(url), chance.choice(CONTENTS)
        began = time.monotonic()
        if chance.random() < 0.3:
            store.put(content)
        elif not store.touch(digest_of(content)):
            time.sleep(chance.random())
            continue
        else:
            touches += 1
        is_stored = store.has(digest_of(content))
        if time.monotonic() - began < PROMISED_S:
            assert is_stored, "what was put or touched is gone"
            assert store.read(digest_of(content)) == content
        time.sleep(chance.random() * 2 * AGE_S)
    return touches


def collector(url: str, stop: threading.Event) -> int:
    """Discard all that is old, again and again; how many blobs went."""
    removed = 0
    store = ObjectStore(url)
    while not stop.is_set():
        before = time.time() - AGE_S
        for blob in list(store.listing()):
            if blob.touched < before and store.discard(blob.digest, before):
                removed += 1
    return removed


def test_what_is_put_or_touched_stays_beside_collections(s3_url, monkeypatch):
    monkeypatch.setattr("artifacts.remote.FRESH_S", 0.0)
    connect(s3_url)
    stop, until = threading.Event(), time.monotonic() + SECONDS
    with ThreadPoolExecutor(10) as pool:
        collectors = [pool.submit(collector, s3_url, stop) for _ in range(2)]
        clients = [pool.submit(client, s3_url, seed, until) for seed in range(8)]
        try:
            touches = sum(task.result() for task in clients)
        finally:
            stop.set()
        removed = sum(task.result() for task in collectors)
    assert touches > 0
    assert removed > 0
