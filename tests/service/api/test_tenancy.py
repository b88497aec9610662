"""Tenants do not see each other, and tokens are good for what they say and as long."""

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from sqlalchemy import event

from artifacts.documents import MANIFEST
from relaxd.contract.canonical import digest_of
from service.identity import DEFAULT, Scope
from service.usecases.store import holdings
from service.usecases.tenants import tenants, tokens
from tests.service.tenancy import OPERATOR, House, compile_model, house

UNKNOWN = "sha256:" + "e" * 64
MANIFEST_TYPE = {"Content-Type": MANIFEST}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house(tmp_path_factory.mktemp("tenancy")) as running:
        yield running


@pytest.fixture(scope="module")
def alice(guarded: House) -> httpx.Client:
    return guarded.client("a")


@pytest.fixture(scope="module")
def bob(guarded: House) -> httpx.Client:
    return guarded.client("b")


def blobs_of(client: httpx.Client, repository: str, digest: str) -> list[str]:
    manifest = client.get(f"/v2/{repository}/manifests/{digest}")
    assert manifest.status_code == 200, manifest.text
    return [layer["digest"] for layer in manifest.json()["layers"]]


def list_seen(answer: httpx.Response, *names: str) -> tuple[int, str, dict[str, str]]:
    """An answer without what names the thing asked for, or the request."""
    text = re.sub(r'"request_id":"[0-9a-f]+"', "", answer.text)
    for name in names:
        # A tenant's name is part of other words.
        text = text.replace(name, "X") if len(name) > 6 else re.sub(rf"'{name}\b", "'X", text)
    retained = {
        key: value
        for key, value in answer.headers.items()
        if key not in ("date", "x-request-id", "content-length")
    }
    return answer.status_code, text, retained


def test_a_tenant_finds_its_own(alice: httpx.Client) -> None:
    job = compile_model(alice)
    (build,) = job["builds"]
    digest = build["artifact"]["digest"]
    assert build["artifact"]["ref"] == f"a/bundles@{digest}"
    assert job["index"]["ref"] == f"a/bundles:job-{job['id']}"
    assert [result["id"] for result in alice.get("/v1/jobs").json()["jobs"]] == [job["id"]]
    for layer in blobs_of(alice, "a/bundles", digest):
        assert alice.get(f"/v2/a/bundles/blobs/{layer}").status_code == 200
    index = alice.get(f"/v2/a/bundles/manifests/job-{job['id']}")
    assert index.status_code == 200
    assert [entry["digest"] for entry in index.json()["manifests"]] == [digest]
    referrers = alice.get(f"/v2/a/bundles/referrers/{digest}").json()["manifests"]
    assert len(referrers) == 2, "the bill of materials and the profile"
    for referrer in referrers:
        assert alice.get(f"/v2/a/bundles/manifests/{referrer['digest']}").status_code == 200
    described = alice.get(f"/v1/artifacts/{digest}").json()
    assert alice.get(described["files"][0]["url"]).status_code == 200
    assert alice.get(f"/v1/actions/{build['action_key']}").json()["bundle"] == digest


def test_another_tenant_cannot_tell_it_from_what_is_not_there(
    alice: httpx.Client, bob: httpx.Client, guarded: House
) -> None:
    job = compile_model(alice, b"a secret model")
    (build,) = job["builds"]
    bundle, model = build["artifact"]["digest"], job["model"]
    layers = blobs_of(alice, "a/bundles", bundle)
    token = tokens.list_all(guarded.core, "a")[0].id
    alice.put(f"/v1/pins/{bundle}", json={})
    session = alice.post("/v2/a/models/blobs/uploads/").headers["Docker-Upload-UUID"]
    pairs: list[tuple[str, str, str]] = [
        *(("GET", f"/v1/jobs/{{}}{end}", job["id"]) for end in ("", "/events", "/logs")),
        ("POST", "/v1/jobs/{}:cancel", job["id"]),
        ("GET", "/v1/actions/{}", build["action_key"]),
        ("DELETE", "/v1/pins/{}", bundle),
        ("DELETE", "/v1/tokens/{}", token),
        ("DELETE", "/v1/tokens/{}?tenant=a", token),
        ("GET", "/v1/tokens?tenant={}", "a"),
        ("GET", "/v2/b/bundles/manifests/job-{}", job["id"]),
        ("GET", "/v2/b/bundles/referrers/{}", bundle),
        ("GET", "/v2/{}/bundles/tags/list", "a"),
        *(
            (method, f"/v2/b/models/blobs/uploads/{{}}?digest={model}", session)
            for method in ("GET", "PATCH", "PUT", "DELETE")
        ),
    ]
    for digest in (bundle, model, job["index"]["digest"], *layers):
        pairs += [
            ("GET", "/v1/artifacts/{}", digest),
            ("PUT", "/v1/pins/{}", digest),
            *(
                (method, f"/v2/{name}/bundles/{kind}/{{}}", digest)
                for method in ("GET", "HEAD")
                for kind in ("blobs", "manifests")
                for name in ("a", "b", "relaxd")
            ),
        ]
    unknown = {job["id"]: "f" * 16, token: "f" * 16, session: "f" * 32, "a": "nope"}
    for method, path, name in pairs:
        body: dict[str, Any] = {"json": {}} if method == "PUT" and "pins" in path else {}
        other = unknown.get(name, UNKNOWN)
        real = list_seen(bob.request(method, path.format(name), **body), name)
        made_up = list_seen(bob.request(method, path.format(other), **body), other)
        assert real == made_up, (method, path)
    assert bob.get("/v1/jobs").json() == {"jobs": []}
    assert bob.get("/v1/pins").json() == {"pins": []}


def test_knowing_a_digest_is_no_right_to_submit_mount_or_refer(
    alice: httpx.Client, bob: httpx.Client
) -> None:
    model = compile_model(alice, b"another secret model")["model"]
    for endpoint in ("/v1/jobs", "/v1/inspect"):
        answers = [bob.post(endpoint, json={"model": name}) for name in (model, UNKNOWN)]
        assert [answer.json()["code"] for answer in answers] == ["model.unknown"] * 2
    mounted = bob.post(f"/v2/b/models/blobs/uploads/?mount={model}&from=a/models")
    assert mounted.status_code == 202, "an upload begins, as for bytes that are not there"
    layer = {"mediaType": "application/octet-stream", "digest": model, "size": 20}
    manifest = {"schemaVersion": 2, "config": layer, "layers": [layer]}
    pushed = bob.put("/v2/b/bundles/manifests/mine", json=manifest, headers=MANIFEST_TYPE)
    assert pushed.json()["errors"][0]["code"] == "MANIFEST_BLOB_UNKNOWN"
    finished = bob.put(f"/v2/b/models/blobs/uploads/{'0' * 32}?digest={model}")
    assert finished.status_code == 404


def test_equal_work_is_done_once_for_each_tenant_and_found_by_neither(
    alice: httpx.Client, bob: httpx.Client, guarded: House
) -> None:
    before = len(guarded.live.compiler.jobs)
    mine, again, theirs = (compile_model(client, b"popular") for client in (alice, alice, bob))
    assert [job["builds"][0]["cached"] for job in (mine, again, theirs)] == [False, True, False]
    assert len(guarded.live.compiler.jobs) == before + 2
    keys = {job["builds"][0]["action_key"] for job in (mine, theirs)}
    assert len(keys) == 2
    digest = theirs["builds"][0]["artifact"]["digest"]
    assert digest == mine["builds"][0]["artifact"]["digest"], "the store keeps it once"
    for client, name in ((alice, "a"), (bob, "b")):
        assert client.get(f"/v2/{name}/bundles/manifests/{digest}").status_code == 200


def test_tenants_that_share_take_each_others_results(guarded: House) -> None:
    clients = []
    for name in ("c", "d"):
        tenants.create(guarded.core, name)
        tenants.change(guarded.core, name, shares_cache=True)
        clients.append(guarded.client(name))
    before = len(guarded.live.compiler.jobs)
    first, second = (compile_model(client, b"shared") for client in clients)
    assert len(guarded.live.compiler.jobs) == before + 1
    assert second["builds"][0]["cached"]
    digest = second["builds"][0]["artifact"]["digest"]
    assert second["builds"][0]["artifact"]["ref"] == f"d/bundles@{digest}"
    assert first["builds"][0]["action_key"] == second["builds"][0]["action_key"]
    for layer in blobs_of(clients[1], "d/bundles", digest):
        assert clients[1].get(f"/v2/d/bundles/blobs/{layer}").status_code == 200
    referrers = clients[1].get(f"/v2/d/bundles/referrers/{digest}").json()["manifests"]
    assert len(referrers) == 2, "the bill of materials and the profile came along"


def test_idempotency_keys_are_each_tenants_own(alice: httpx.Client, bob: httpx.Client) -> None:
    files = {"model": ("m.onnx", b"idempotent")}
    answers = [
        client.post("/v1/compile", files=files, headers={"Idempotency-Key": "k"}).json()["id"]
        for client in (alice, bob, alice)
    ]
    assert answers[0] == answers[2] != answers[1]


def test_tags_of_jobs_are_the_services_own(alice: httpx.Client) -> None:
    config = {"mediaType": "application/octet-stream", "digest": digest_of(b"{}"), "size": 2}
    alice.post(f"/v2/a/bundles/blobs/uploads/?digest={digest_of(b'{}')}", content=b"{}")
    manifest = {"schemaVersion": 2, "config": config, "layers": [config]}
    statuses = [
        alice.put(f"/v2/{name}", json=manifest, headers=MANIFEST_TYPE).status_code
        for name in ("a/bundles/manifests/job-1", "a/bundles/manifests/v1", "relaxd/x/manifests/v1")
    ]
    assert statuses == [403, 201, 400]


def test_what_the_store_held_before_there_were_tenants_is_the_operators(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    from tests.service.live import live

    with live(tmp_path_factory.mktemp("before"), token=OPERATOR) as running:
        core = running.services.core
        old = core.store.blobs.put(b"from an earlier release").digest
        path = f"/v2/relaxd/models/blobs/{old}"
        assert running.http.get(path).status_code == 200
        tenants.create(core, "late")
        assert running.http.get(path).status_code == 200
        secret = core.store.blobs.put(b"nobody's yet").digest
        assert running.http.get(f"/v2/relaxd/models/blobs/{secret}").status_code == 404


class TestTokens:
    def test_a_token_says_who_one_is(self, alice: httpx.Client, guarded: House) -> None:
        shown = alice.get("/v1/whoami").json()
        assert {key: shown[key] for key in ("tenant", "namespace", "method")} == {
            "tenant": "a",
            "namespace": "a",
            "method": "token",
        }
        operator = guarded.live.http.get("/v1/whoami").json()
        assert (operator["tenant"], operator["namespace"]) == (DEFAULT, "relaxd")

    def test_its_secret_is_shown_once_and_not_kept(self, alice: httpx.Client, guarded) -> None:
        body = {"name": "ci", "scopes": ["read", "submit"], "days": 1}
        created = alice.post("/v1/tokens", json=body)
        assert created.status_code == 201
        text = created.json()["token"]
        secret = text.rpartition("_")[2]
        assert re.fullmatch(r"relaxd_[0-9a-f]{16}_[0-9a-f]{64}", text)
        assert secret not in alice.get("/v1/tokens").text
        database = guarded.core.settings.data_dir
        assert not any(secret.encode() in path.read_bytes() for path in database.glob("jobs.*"))
        client = guarded.with_token(text)
        assert client.get("/v1/jobs").status_code == 200
        listed = {token["id"]: token for token in alice.get("/v1/tokens").json()["tokens"]}
        assert listed[created.json()["id"]]["last_used_at"] is not None

    def test_it_ends_when_it_is_revoked_or_its_days_are_over(
        self, alice: httpx.Client, guarded: House
    ) -> None:
        created = alice.post("/v1/tokens", json={"name": "x", "scopes": ["read"]}).json()
        client = guarded.with_token(created["token"])
        assert client.get("/v1/jobs").status_code == 200
        assert alice.delete(f"/v1/tokens/{created['id']}").json()["revoked_at"]
        assert client.get("/v1/jobs").status_code == 401
        short = tokens.create(guarded.core, "a", "short", [Scope.READ], days=1e-9)
        assert guarded.with_token(short.text).get("/v1/jobs").status_code == 401

    def test_it_can_be_rotated_at_once_or_with_an_overlap(
        self, alice: httpx.Client, guarded: House
    ) -> None:
        old = alice.post("/v1/tokens", json={"name": "r", "scopes": ["read"], "days": 9}).json()
        path = f"/v1/tokens/{old['id']}:rotate"
        new = alice.post(path, json={"overlap_hours": 1}).json()
        clients = [guarded.with_token(created["token"]) for created in (old, new)]
        assert [client.get("/v1/jobs").status_code for client in clients] == [200, 200]
        assert (new["name"], new["scopes"]) == ("r", ["read"])
        assert alice.post(path, json={}).status_code == 201
        assert [client.get("/v1/jobs").status_code for client in clients] == [401, 200]
        assert alice.post(path, json={}).json()["code"] == "token.unknown"

    def test_admins_of_a_tenant_make_no_tokens_for_others(
        self, alice: httpx.Client, guarded: House
    ) -> None:
        body = {"name": "x", "scopes": ["read"]}
        for name in (DEFAULT, "b", "nobody"):
            refused = alice.post("/v1/tokens", json={**body, "tenant": name})
            assert (refused.status_code, refused.json()["code"]) == (404, "tenant.unknown")
        created = guarded.live.http.post("/v1/tokens", json={**body, "tenant": "b"})
        assert created.json()["tenant"] == "b"


def test_an_open_service_makes_no_tokens_and_one_with_tokens_is_not_open(tmp_path) -> None:
    from tests.service.live import live

    with live(tmp_path) as running:
        refused = running.http.post("/v1/tokens", json={"name": "x", "scopes": ["read"]})
        assert (refused.status_code, refused.json()["code"]) == (409, "token.open_service")
        assert running.http.get("/v1/jobs").status_code == 200
        tokens.create(running.services.core, DEFAULT, "x", [Scope.READ])
    with live(tmp_path) as running:
        assert running.http.get("/v1/jobs").status_code == 401, "RELAXD_TOKEN got lost"


def test_limits_are_set_one_by_one(guarded: House) -> None:
    operator = guarded.live.http
    assert operator.post("/v1/tenants", json={"name": "lim"}).status_code == 201
    assert operator.post("/v1/tenants", json={"name": "lim"}).status_code == 409
    operator.patch("/v1/tenants/lim", json={"running": 2, "weight": 3.0})
    changed = operator.patch("/v1/tenants/lim", json={"queued": 5}).json()
    assert (changed["running"], changed["queued"], changed["weight"]) == (2, 5, 3.0)
    assert operator.patch("/v1/tenants/lim", json={"running": None}).json()["running"] is None
    for bad in ("relaxd", "default", "A", "a--b", "a/b", "-a", "x" * 41):
        assert operator.post("/v1/tenants", json={"name": bad}).status_code in (409, 422), bad
    assert operator.patch("/v1/tenants/nobody", json={}).status_code == 404


def test_an_operator_deletes_a_tenant(guarded: House) -> None:
    operator = guarded.live.http
    operator.post("/v1/tenants", json={"name": "gone"})
    client = guarded.client("gone")
    compile_model(client, b"a model of one who leaves")
    assert operator.delete("/v1/tenants/gone").json() == {
        "name": "gone",
        "jobs": 1,
        "tokens": 1,
        "tags": 1,
    }
    assert client.get("/v1/jobs").status_code == 401
    assert operator.delete("/v1/tenants/gone").json()["code"] == "tenant.unknown"
    assert operator.delete("/v1/tenants/default").json()["code"] == "tenant.kept"
    entries = operator.get("/v1/audit").json()["entries"]
    (entry,) = (e for e in entries if e["action"] == "tenant.delete" and e["outcome"] == "done")
    assert (entry["subject"], entry["detail"]["jobs"]) == ("gone", 1)


def test_a_manifest_of_many_layers_asks_the_database_a_few_times(guarded: House) -> None:
    client, core = guarded.client("a"), guarded.core
    sizes = {digest_of(b"%d" % number): len(b"%d" % number) for number in range(1000)}
    for number in range(1000):
        core.store.blobs.put(b"%d" % number)
    core.store.blobs.put(b"{}")
    holdings.hold(core, "a", sizes | {digest_of(b"{}"): 2})
    layers = [{"mediaType": "x/y", "digest": d, "size": size} for d, size in sizes.items()]
    config = {"mediaType": "application/json", "digest": digest_of(b"{}"), "size": 2}
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers * 4}
    statements: list[str] = []
    event.listen(core.db._engine, "before_cursor_execute", lambda *call: statements.append(call[2]))
    answer = client.put("/v2/a/many/manifests/v1", json=manifest, headers=MANIFEST_TYPE)
    assert answer.status_code == 201, answer.text
    assert 0 < len(statements) < 40
    lacking = {**manifest, "layers": [*layers, {**layers[0], "digest": UNKNOWN}]}
    answer = client.put("/v2/a/many/manifests/v2", json=lacking, headers=MANIFEST_TYPE)
    assert answer.status_code == 400
