"""Rows about the blob store: crashes, flipped bits, and collections beside everything else."""

import itertools
import logging
import os
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from artifacts import open_store
from artifacts.errors import StoreError
from artifacts.reading import LOGGER
from artifacts.store import hex_of
from relaxd.contract.canonical import digest_of
from service.observability.storage import StoreCollector
from tests.robustness import tracing
from tests.robustness.row import Outcome, Row, Run
from tests.service import collecting_world
from tests.service.live import Live, live, quiet

RECORD = "tags/v1"
VALUES = [f"value {number}" for number in range(4)]
REPORTED = 20


class _Script:
    """Change a store from a process, the same for a seed, with a line in `ledger` before each
    change and after it.
    """

    def __init__(self, root: Path, ledger: Path, seed: int) -> None:
        self.root, self.ledger = root, ledger
        draw = random.Random(seed)
        self.blobs = [draw.randbytes(draw.choice([0, 1, 5000, 70_000])) for _ in range(5)]

    def __call__(self) -> None:
        ledger = os.open(self.ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        store = open_store(self.root)
        for data, value in itertools.zip_longest(self.blobs, VALUES, fillvalue=None):
            if value:
                os.write(ledger, f"record {value}\n".encode())
                store.references.tag("models", "v1", digest_of(value.encode()))
            if data is not None:
                digest = store.blobs.put(iter([data[:3000], data[3000:]])).digest
                os.write(ledger, f"put {digest}\n".encode())
        first = digest_of(self.blobs[0])
        os.utime(_path_of(self.root, first), (0, 0))
        os.write(ledger, f"gone {first}\n".encode())
        store.blobs.discard(first, before=1)
        os.write(ledger, f"put {store.blobs.put(self.blobs[0]).digest}\n".encode())

    def check(self) -> list[str]:
        """Find faults of a store after a crash."""
        store, wrong = open_store(self.root), []
        retained: set[str] = set()
        values: list[str] = []
        for line in self.ledger.read_text().splitlines() if self.ledger.exists() else ():
            word, _, what = line.partition(" ")
            if word == "record":
                values.append(digest_of(what.encode()))
            (retained.add if word == "put" else retained.discard)(what)
        for digest in retained | {stored.digest for stored in store.blobs.listing()}:
            try:
                if digest_of(store.blobs.read(digest)) != digest:
                    wrong.append(f"wrong bytes for {digest}")
            except StoreError as error:
                wrong.append(str(error))
        result = store.references.resolve("models", "v1")
        if values and result not in ([*values[-2:], None] if len(values) == 1 else values[-2:]):
            wrong.append(f"the record is {result}, after {values}")
        wrong += [f"{path} was left" for path in (self.root / "tmp").iterdir()]
        return wrong


def crashes(run: Run) -> Outcome:
    """Kill a writer at random boundaries; every other time, lose what was not synced, too."""
    draw, wrong, lost = random.Random(run.seed), [], 0
    root = (run.folder / "measured").resolve()
    every = tracing.run(_Script(root, run.folder / "measured.ledger", run.seed)).boundaries
    for number in range(run.count):
        root = (run.folder / str(number)).resolve()
        root.mkdir()
        script = _Script(root / "store", run.folder / f"{number}.ledger", run.seed)
        traced = tracing.run(script, draw.randint(1, every))
        if number % 2:
            lost += 1
            for tree in (root / "store" / "blobs", root / "store" / "records"):
                if tree.is_dir():
                    traced.durable.lose_the_rest(tree)
        wrong += script.check()
    counts = {"boundaries": every, "power failures": lost, "wrong": len(wrong)}
    return Outcome(not wrong, counts, "\n".join(wrong[:REPORTED]))


def _path_of(root: Path, digest: str) -> Path:
    name = hex_of(digest)
    return root / "blobs" / "sha256" / name[:2] / name


def flipped_bits(run: Run) -> Outcome:
    """Flip a bit of each blob on the disk and ask the service for it."""
    draw, tally = random.Random(run.seed), Counter[str]()
    with live(run.folder) as service, _errors() as reports:
        root = service.services.settings.data_dir / "store"
        for _ in range(run.count):
            data = draw.randbytes(draw.choice([1, 1000, 1 << 20, (1 << 20) + 1, 3 << 20]))
            digest = service.upload(data)
            _flip(_path_of(root, digest), draw)
            tally["served"] += _is_served(service, digest, len(data), draw)
            tally["gone"] += service.http.head(f"/v2/relaxd/x/blobs/{digest}").status_code == 404
        tally["quarantined"] = len(list((root / "quarantine").iterdir()))
        tally["reported"] = sum("corrupt" in line for line in reports)
        shown = {
            metric.name: metric.samples[0].value
            for metric in StoreCollector(service.services.core).collect()
        }
    results = [
        tally["gone"],
        tally["quarantined"],
        tally["reported"],
        shown["relaxd_store_quarantined_blobs"],
    ]
    stored = tally["served"] == 0 and set(results) == {run.count}
    return Outcome(stored, dict(tally))


def _flip(path: Path, draw: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    path.chmod(0o644)
    path.write_bytes(data)


def _is_served(service: Live, digest: str, size: int, draw: random.Random) -> bool:
    """True if the service gave the blob, or a part of it, as if it were sound."""
    headers = draw.choice([{}, {"Range": f"bytes=0-{size // 2}"}, {"Range": "bytes=-1"}])
    with suppress(httpx.RemoteProtocolError):  # a broken connection is how a large blob ends
        answer = service.http.get(f"/v2/relaxd/x/blobs/{digest}", headers=headers)
        return answer.status_code < 400
    return False


@contextmanager
def _errors() -> Iterator[list[str]]:
    lines: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    LOGGER.addHandler(handler)
    try:
        yield lines
    finally:
        LOGGER.removeHandler(handler)


def collections(run: Run) -> Outcome:
    """Half of the operations against a local store, half against an object store."""
    tally = Counter[str]()
    # Nothing crashes here, so nothing has to reach a disk.
    memory = Path("/dev/shm")
    for kind in ("local", "remote"):
        within = memory if memory.is_dir() else run.folder
        with quiet(), tempfile.TemporaryDirectory(prefix="relaxd-gc-", dir=within) as folder:
            tally += collecting_world.run(kind, Path(folder), -(-run.count // 2), run.seed)
    counts = {name.replace(" ", "_"): tally[name] for name in sorted(tally)}
    return Outcome(tally["collections"] > 1 and tally["removed"] > 0, counts)


ROWS = (
    Row(
        "store-crashes",
        "a writer killed at a system call loses no acknowledged blob, and no wrong byte is served",
        500,
        crashes,
        "A power failure is simulated: what was not synced is taken away. That the disk keeps "
        "what it said it synced is not shown.",
    ),
    Row(
        "flipped-bits",
        "each blob with a flipped bit is detected, set aside and reported; none is served",
        200,
        flipped_bits,
    ),
    Row(
        "collections",
        "collections without end beside uploads, pulls, pins and builds leave no reference "
        "dangling and remove nothing that is needed",
        10_000,
        collections,
        "The object store is obstore's in memory; builds write small files in place of compiling.",
    ),
)
