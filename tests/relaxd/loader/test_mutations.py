"""Mutated manifests, tars and OCI documents: whatever goes wrong is an error of ours."""

import copy
import gzip
import io
import json
import random
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import relaxd
from relaxd.client.pull import _layers, targets_of
from relaxd.contract.bundle.manifest import Manifest
from relaxd.contract.documents import read_json
from relaxd.errors import BundleError, RelaxdError
from relaxd.loader.bundles import archive
from relaxd.loader.bundles.bundle import Bundle, open_bundle, read_manifest
from relaxd.loader.machine.check import check_contract
from relaxd.loader.machine.host import this_host

COUNT = 500
NESTED: Any = []
for _ in range(200):
    NESTED = [NESTED]
JUNK: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    2**31,
    2**63,
    2**200,
    10**400,
    1.5,
    float("nan"),
    float("inf"),
    "",
    "\0",
    "\ud800",
    "../../etc/passwd",
    "/etc/passwd",
    "a" * 5000,
    "n//0",
    "9" * 5000,
    "٣",
    [],
    {},
    [None],
    {"": None},
    {"../x": {}},
    NESTED,
)


def json_paths(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to every value in a document."""
    results = [path] if path else []
    entries: Any = ()
    if isinstance(document, dict | list):
        entries = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in entries:
        results += json_paths(value, (*path, key))
    return results


def mutate(document: Any, chance: random.Random) -> Any:
    """A copy with one to three values replaced, removed, doubled or renamed."""
    changed = copy.deepcopy(document)
    for _ in range(chance.randint(1, 3)):
        where = chance.choice(json_paths(changed) or [()])
        if not where:
            return chance.choice(JUNK)
        parent = changed
        for key in where[:-1]:
            parent = parent[key]
        match chance.randrange(5):
            case 0:
                del parent[where[-1]]
            case 1 if isinstance(parent, dict):
                name = chance.choice([entry for entry in JUNK if isinstance(entry, str)])
                parent[name] = parent.pop(where[-1])
            case 2 if isinstance(parent, list):
                parent.append(copy.deepcopy(parent[where[-1]]))
            case _:
                parent[where[-1]] = chance.choice(JUNK)
    return changed


def as_far_as_opening(data: bytes, directory: Path) -> None:
    """Checks of `relaxd.load` before it opens a library."""
    manifest = Manifest.from_json(read_json(data, "manifest.json"))
    check_contract(manifest, this_host())
    bundle = Bundle(str(directory), manifest)
    bundle.verify()
    bundle.numerics()


@pytest.fixture(scope="module")
def original(bundles: Path) -> dict[str, Any]:
    """A manifest with weights, dims and files."""
    document: dict[str, Any] = json.loads((bundles / "constant" / "manifest.json").read_text())
    return document


def test_a_mutated_manifest_is_refused_by_a_typed_error(bundles, original):
    chance, refuse = random.Random(1), 0
    as_far_as_opening(json.dumps(original).encode(), bundles / "constant")
    # Its libraries need not be hashed a thousand times.
    small = {name: entry for name, entry in original["files"].items() if entry["size"] < 10**5}
    for _ in range(COUNT):
        data = json.dumps(mutate(original | {"files": small}, chance)).encode()
        try:
            as_far_as_opening(data, bundles / "constant")
        except RelaxdError:
            refuse += 1
    assert refuse > COUNT * 0.7


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"9" * 10_000,
        b'{"schema_version": NaN}',
        b'{"schema_version": 1, "name": "\\ud800"}',
        b"\xff\xfe",
        b"",
    ],
    ids=["nested lists", "nested objects", "digits", "nan", "surrogate", "no utf-8", "nothing"],
)
def test_what_is_no_plain_json_is_refused(data, tmp_path):
    (tmp_path / "manifest.json").write_bytes(data)
    with pytest.raises(BundleError):
        relaxd.load(tmp_path)


def test_mutated_bytes_are_refused_by_a_typed_error(bundles, original, tmp_path):
    chance, full = random.Random(2), json.dumps(original).encode()
    for _ in range(COUNT):
        data = bytearray(full)
        for _ in range(chance.randint(1, 8)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        (tmp_path / "manifest.json").write_bytes(data)
        try:
            read_manifest(tmp_path)
        except RelaxdError:
            continue


def test_a_mutated_index_or_manifest_of_a_registry_is_refused_by_a_typed_error():
    chance = random.Random(3)
    entry = {"mediaType": "x", "digest": "sha256:" + "0" * 64, "size": 3}
    layer = {**entry, "annotations": {"org.opencontainers.image.title": "model.so"}}
    manifest = {"schemaVersion": 2, "layers": [layer]}
    index = {"schemaVersion": 2, "manifests": [{**entry, "annotations": {"a": "b"}}]}
    for use, document in ((_layers, manifest), (targets_of, index)):
        use(document)
        for _ in range(COUNT):
            changed = mutate(document, chance)
            try:
                use(changed if isinstance(changed, dict) else {})
            except RelaxdError:
                continue


def tar_of(files: dict[str, bytes], *more: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        for member in more:
            tar.addfile(member)
    return buffer.getvalue()


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE]
)
def test_a_member_that_is_no_plain_file_counts_as_absent(tmp_path, kind):
    path = tmp_path / "bundle.tar"
    path.write_bytes(tar_of({}, link("manifest.json", "/etc/passwd", kind)))
    with pytest.raises(BundleError, match=r"holds no manifest\.json"):
        relaxd.load(path)


def peak_of(use: Callable[[], Any]) -> int:
    tracemalloc.start()
    try:
        use()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def refuse(path: Path) -> Callable[[], None]:
    def load() -> None:
        with pytest.raises(BundleError):
            relaxd.load(path)

    return load


@pytest.mark.parametrize("name", ["manifest.json", "ahead"])
def test_a_bomb_costs_little_memory(tmp_path, monkeypatch, name):
    """200 MB of zeros in 200 kB."""
    monkeypatch.setattr(archive, "FLOOR", 8 << 20)
    member = tarfile.TarInfo(name)
    member.size = 200 << 20
    with gzip.open(tmp_path / "bomb.tar.gz", "wb", compresslevel=9) as file:
        file.write(member.tobuf())
        for _ in range(200):
            file.write(bytes(1 << 20))
    assert peak_of(refuse(tmp_path / "bomb.tar.gz")) < 150 << 20


def test_a_header_that_claims_to_be_huge_is_not_read(tmp_path):
    member = tarfile.TarInfo("x" * 20)
    member.type, member.size = tarfile.XHDTYPE, 1 << 30
    with gzip.open(tmp_path / "bomb.tar.gz", "wb", compresslevel=9) as file:
        file.write(member.tobuf())
        file.write(bytes(64 << 20))
    assert peak_of(refuse(tmp_path / "bomb.tar.gz")) < 80 << 20


def test_mutated_tars_are_refused_by_a_typed_error(tmp_path, original):
    chance = random.Random(4)
    small = dict(original, files={}, weights=[])
    full = tar_of({"a": b"x" * 600, "manifest.json": json.dumps(small).encode()})
    path = tmp_path / "bundle.tar"
    for number in range(COUNT):
        data = bytearray(full)
        for _ in range(chance.randint(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        path.write_bytes(gzip.compress(data) if number % 2 else data[: chance.randrange(len(data))])
        try:
            with open_bundle(path):
                pass
        except RelaxdError:
            continue


def test_files_of_other_sizes_than_listed_are_refused(tmp_path, original):
    entry = {"sha256": "0" * 64, "size": 3}
    small = dict(original, files={"a": entry}, weights=[])
    for data, why in ((b"four", "lists 3"), (None, "holds no a")):
        files = {} if data is None else {"a": data}
        (tmp_path / "b.tar").write_bytes(
            tar_of({**files, "manifest.json": json.dumps(small).encode()})
        )
        with pytest.raises(BundleError, match=why):
            relaxd.load(tmp_path / "b.tar")
    small["files"] = {"a": {**entry, "size": 2**50}}
    (tmp_path / "b.tar").write_bytes(tar_of({"manifest.json": json.dumps(small).encode()}))
    with pytest.raises(BundleError, match="too small"):
        relaxd.load(tmp_path / "b.tar")
