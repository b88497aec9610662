"""Limits of a tenant, and the log of what it changed."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.api.audit import MOST_REFUSALS
from service.api.errors import TooManyRequests
from service.api.rates import Rates
from service.identity import Limits
from service.usecases import auditing
from service.usecases.tenants import tenants
from tests.service.live import MODEL
from tests.service.tenancy import House, compile_model, house


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house(tmp_path_factory.mktemp("limits")) as running:
        yield running


def tenant(guarded: House, name: str, **limits) -> httpx.Client:
    tenants.create(guarded.core, name)
    tenants.change(guarded.core, name, limits=Limits(**limits))
    return guarded.client(name)


def test_a_full_queue_is_429_until_builds_have_begun(guarded: House) -> None:
    client = tenant(guarded, "queue", queued=2)
    request = '{"targets": ["x86-64-v2", "x86-64-v3", "aarch64"]}'
    files: dict[str, Any] = {"model": ("m.onnx", MODEL), "request": (None, request)}
    refused = client.post("/v1/compile", files=files)
    assert (refused.status_code, refused.json()["code"]) == (429, "tenant.queue_full")
    assert int(refused.headers["Retry-After"]) > 0
    assert refused.json()["retryable"]
    compile_model(client, request='{"targets": ["x86-64-v2", "x86-64-v3"]}')


def test_a_quota_is_507_for_uploads_and_submissions(guarded: House) -> None:
    client = tenant(guarded, "small", stored_bytes=6000)
    job = compile_model(client, b"m" * 1000)
    stored = next(t for t in tenants.list_all(guarded.core) if t.name == "small").stored_bytes
    assert stored > 2000, "the model, and the bundle that was built of it"
    upload = {"model": ("m.onnx", b"n" * 6000)}
    refused = client.post("/v1/compile", files=upload)
    assert (refused.status_code, refused.json()["code"]) == (507, "tenant.quota")
    pushed = client.post(
        "/v2/small/models/blobs/uploads/?digest=sha256:" + "1" * 64, content=b"n" * 6000
    )
    assert pushed.status_code == 507
    tenants.change(guarded.core, "small", limits=Limits(stored_bytes=stored))
    refused = client.post("/v1/jobs", json={"model": job["model"], "targets": ["x86-64-v2"]})
    assert (refused.status_code, refused.json()["code"]) == (507, "tenant.quota")


def test_a_bucket_fills_as_time_goes_by(guarded: House) -> None:
    tenants.create(guarded.core, "bucket")
    tenants.change(guarded.core, "bucket", limits=Limits(requests=2.0))
    now = [0.0]
    rates = Rates(guarded.core, lambda: now[0])
    rates.read()
    for _ in range(4):
        rates.take("bucket")
    with pytest.raises(TooManyRequests) as refused:
        rates.take("bucket")
    assert refused.value.retry_after_s == pytest.approx(0.5)
    rates.take("a")
    now[0] += 0.5
    rates.take("bucket")
    with pytest.raises(TooManyRequests):
        rates.take("bucket")
    now[0] += 1000
    for _ in range(4):
        rates.take("bucket")
    with pytest.raises(TooManyRequests):
        rates.take("bucket")


def test_too_many_requests_are_429_in_both_forms(tmp_path: Path) -> None:
    with house(tmp_path) as fresh:
        client = fresh.client("a")
        tenants.change(fresh.core, "a", limits=Limits(requests=0.001))
        assert client.get("/v1/whoami").status_code == 200
        problem, listed = client.get("/v1/jobs"), client.get("/v2/")
        assert [answer.status_code for answer in (problem, listed)] == [429, 429]
        assert problem.json()["code"] == "tenant.rate"
        assert listed.json()["errors"][0]["code"] == "TOOMANYREQUESTS"
        assert int(problem.headers["Retry-After"]) > 100
        assert fresh.client("b").get("/v1/jobs").status_code == 200


class TestAudit:
    def test_every_change_is_noted_with_who_and_how_it_ended(self, guarded: House) -> None:
        client = tenant(guarded, "noted")
        job = compile_model(client)
        digest = job["builds"][0]["artifact"]["digest"]
        client.post(f"/v1/jobs/{job['id']}:cancel")
        client.post("/v1/jobs/0123456789abcdef:cancel")
        client.put(f"/v1/pins/{digest}", json={})
        client.delete(f"/v1/pins/{digest}")
        created = client.post("/v1/tokens", json={"name": "ci", "scopes": ["read"]}).json()
        client.delete(f"/v1/tokens/{created['id']}")
        client.post("/v1/gc")
        client.get("/v1/jobs")
        entries = client.get("/v1/audit").json()["entries"]
        noted = [(e["action"], e["subject"], e["outcome"]) for e in reversed(entries)]
        assert noted == [
            ("submit", job["id"], "done"),
            ("cancel", job["id"], "done"),
            ("cancel", "0123456789abcdef", "refused"),
            ("pin", digest, "done"),
            ("unpin", digest, "done"),
            ("token.create", created["id"], "done"),
            ("token.revoke", created["id"], "done"),
            ("gc", "", "refused"),
        ]
        assert {entry["principal"].split()[0] for entry in entries} == {"t"}
        assert all(entry["request_id"] for entry in entries)
        assert created["token"].rpartition("_")[2] not in str(entries)

    def test_a_tenant_reads_its_own_and_operators_everyones(self, guarded: House) -> None:
        guarded.live.http.patch("/v1/tenants/a", json={"weight": 2.0})
        own = guarded.client("a").get("/v1/audit").json()["entries"]
        assert {entry["tenant"] for entry in own} <= {"a"}
        assert guarded.client("a").get("/v1/audit?tenant=b").status_code == 404
        # The service's own chores are noted too, whenever they are due.
        every = guarded.live.http.get("/v1/audit").json()["entries"]
        newest = next(entry for entry in every if entry["action"] == "tenant.set")
        assert newest["detail"]["weight"] == 2.0
        page = guarded.live.http.get("/v1/audit?limit=1").json()["entries"]
        assert len(page) == 1
        before = guarded.live.http.get(f"/v1/audit?before={page[0]['id']}").json()["entries"]
        assert all(entry["id"] < page[0]["id"] for entry in before)

    @pytest.mark.parametrize("quota", [None, 1])
    def test_of_many_requests_that_changed_nothing_few_have_entries(
        self, guarded: House, quota: int | None
    ) -> None:
        name = "full" if quota else "persistent"
        client = tenant(guarded, name, stored_bytes=quota)
        url = f"/v2/{name}/x/blobs/uploads/?digest=sha256:" + "1" * 64
        for _ in range(MOST_REFUSALS + 5):
            status = client.post(url, content=b"not of that digest").status_code
            assert status == (507 if quota else 400)
        entries = client.get("/v1/audit").json()["entries"]
        outcomes = Counter(entry["outcome"] for entry in entries)
        assert outcomes == {"failed" if quota else "refused": MOST_REFUSALS}

    def test_refused_sign_ins_are_counted_and_not_listed_one_by_one(self, tmp_path) -> None:
        with house(tmp_path) as fresh:
            for number in range(50):
                fresh.with_token(f"wrong {number}").get("/v1/jobs")
            (entry,) = fresh.live.http.get("/v1/audit").json()["entries"]
            assert (entry["action"], entry["outcome"]) == ("sign-in", "refused")
            assert entry["detail"] == {"count": 1, "addresses": ["127.0.0.1"]}
            assert "wrong" not in str(entry)


def test_old_entries_expire(core, clock) -> None:
    entry: dict[str, Any] = {
        "tenant": "a",
        "principal": "p",
        "action": "gc",
        "subject": "",
        "outcome": "done",
    }
    auditing.record(core, **entry)
    clock.advance(core.settings.audit_days * 86400 + 1)
    auditing.record(core, **entry)
    auditing.expire(core)
    (left,) = auditing.list_entries(core, None, 10)
    assert left.time.timestamp() == clock.now
