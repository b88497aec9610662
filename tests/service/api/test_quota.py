"""Whatever a tenant has under way counts for its quota from the first byte."""

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from relaxd.contract.canonical import digest_of
from service.api import uploads
from service.identity import Limits
from service.usecases.store import collecting
from service.usecases.tenants import tenants
from tests.service.tenancy import House, house

MIB = 1 << 20
QUOTA = 4 * MIB
UPLOADS = "/v2/a/x/blobs/uploads/"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[House]:
    with house(tmp_path, max_uploads=5) as running:
        tenants.change(running.core, "a", limits=Limits(stored_bytes=QUOTA))
        yield running


@pytest.fixture
def client(guarded: House) -> httpx.Client:
    return guarded.client("a")


def data_of(seed: int, size: int = MIB) -> bytes:
    return random.Random(seed).randbytes(size)


def begin(client: httpx.Client) -> str:
    answer = client.post(UPLOADS)
    assert answer.status_code == 202, answer.text
    return answer.headers["Location"]


def put(client: httpx.Client, data: bytes) -> httpx.Response:
    return client.post(f"{UPLOADS}?digest={digest_of(data)}", content=data)


def size_on_disk(core: Any) -> int:
    return sum(path.stat().st_size for path in core.settings.upload_dir.iterdir())


def test_bytes_of_open_uploads_count(guarded: House, client: httpx.Client) -> None:
    first, second = begin(client), begin(client)
    assert client.patch(first, content=data_of(1, 3 * MIB)).status_code == 202
    refused = client.patch(second, content=data_of(2, 2 * MIB))
    assert refused.status_code == 507
    assert client.patch(second, content=data_of(2)).status_code == 202
    assert size_on_disk(guarded.core) == QUOTA
    assert put(client, b"x").status_code == 507
    assert client.post(UPLOADS).status_code == 507
    assert client.delete(second).status_code == 204
    digest = digest_of(data_of(1, 3 * MIB))
    assert client.put(first, params={"digest": digest}).status_code == 201
    assert tenants.get(guarded.core, "a").stored_bytes == 3 * MIB
    assert put(client, data_of(3)).status_code == 201, "what has ended counts no longer"
    assert put(client, b"x").status_code == 507


def test_puts_at_once_store_no_more_than_the_quota(guarded: House, client: httpx.Client) -> None:
    tenants.change(guarded.core, "a", limits=Limits(stored_bytes=2 * MIB))
    guarded.core.settings.__dict__["max_uploads"] = 100
    with ThreadPoolExecutor(20) as threads:
        answers = list(threads.map(lambda seed: put(client, data_of(seed)), range(60)))
    statuses = Counter(answer.status_code for answer in answers)
    assert set(statuses) == {201, 507}
    assert statuses[201] <= 2
    assert tenants.get(guarded.core, "a").stored_bytes <= 2 * MIB
    assert size_on_disk(guarded.core) == 0


def test_jobs_count_by_what_they_declare(guarded: House, client: httpx.Client) -> None:
    assert put(client, b"a model").status_code == 201
    model, answers = digest_of(b"a model"), Counter[int]()
    for number in range(10):
        dims = {f"d{number}_{'d' * 40}{each}": 2 for each in range(5000)}
        answers[client.post("/v1/jobs", json={"model": model, "dims": dims}).status_code] += 1
    assert answers.keys() == {202, 507}, "some of 4 MiB were left for each of half a MB"
    assert put(client, data_of(1)).status_code == 507
    limits = Limits(stored_bytes=2 * QUOTA)
    tenants.change(guarded.core, "a", limits=limits)
    assert put(client, data_of(1)).status_code == 201


def test_uploads_are_limited_in_number(client: httpx.Client, guarded: House) -> None:
    opened = [begin(client) for _ in range(5)]
    refused = client.post(UPLOADS)
    assert refused.status_code == 429
    assert refused.headers["Retry-After"] == "10"
    assert refused.json()["errors"][0]["code"] == "TOOMANYREQUESTS"
    assert guarded.client("b").post("/v2/b/x/blobs/uploads/").status_code == 202
    assert client.delete(opened[0]).status_code == 204
    begin(client)


def test_uploads_that_nobody_goes_on_with_end(client: httpx.Client, guarded: House) -> None:
    core = guarded.core
    for _ in range(5):
        client.patch(begin(client), content=data_of(1, 100_000))
    core.settings.__dict__["upload_s"] = -60.0
    assert collecting.run(core).expired_uploads == 5
    core.settings.__dict__["upload_s"] = 3600.0
    assert size_on_disk(core) == 0
    assert put(client, data_of(1, QUOTA)).status_code == 201


def test_a_form_counts_while_it_arrives(
    client: httpx.Client, guarded: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = begin(client)
    assert client.patch(earlier, content=data_of(1, 2 * MIB)).status_code == 202
    parsed: list[object] = []
    real = uploads._read

    async def read(parts: Any, settings: Any) -> Any:
        parsed.append(parts)
        return await real(parts, settings)

    monkeypatch.setattr(uploads, "_read", read)
    large = client.post("/v1/compile", files={"model": ("m.onnx", data_of(2, 3 * MIB))})
    assert (large.status_code, large.json()["code"]) == (507, "tenant.quota")
    assert parsed == [], "it is refused before it has arrived"
    assert client.delete(earlier).status_code == 204
    files = {"model": ("m.onnx", data_of(3, 3 * MIB))}
    assert client.post("/v1/compile", files=files).status_code == 202, "its file counts once"


def test_uploads_leave_the_reserve_of_the_disk(
    client: httpx.Client, guarded: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    core, room = guarded.core, [70 * MIB]

    class Usage:
        @property
        def free(self) -> int:
            return room[0] - size_on_disk(core)

    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage())
    tenants.change(core, "a", limits=Limits())
    upload = begin(client)
    assert client.patch(upload, content=data_of(1, 5 * MIB)).status_code == 202
    assert client.patch(upload, content=data_of(2, 2 * MIB)).status_code == 507
    assert client.get(upload).headers["Range"] == f"0-{5 * MIB - 1}"
    room[0] = 69 * MIB
    form = {"model": ("m.onnx", data_of(3, 3 * MIB))}
    assert client.post("/v1/compile", files=form).status_code == 507
