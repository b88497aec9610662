"""The registry over HTTP: registering, moving an alias, and who may."""

import pytest

from relaxd.contract.canonical import digest_of
from service.identity import Scope
from tests.service.tenancy import house

ABSENT = digest_of(b"never stored")


def test_a_model_from_its_first_version_to_its_removal(api):
    digest = api.upload(b"a bundle of one")
    created = api.http.post(
        "/v1/models/minilm/versions", json={"digest": digest, "labels": {"commit": "1d"}}
    )
    assert created.status_code == 201
    assert created.json()["version"] == 1
    assert created.json()["submitter"] == "anyone"
    moved = api.http.put("/v1/models/minilm/aliases/prod", json={"version": "1"})
    assert (moved.json()["version"], moved.json()["previous"]) == (1, None)
    api.http.patch("/v1/models/minilm", json={"project": "search"})
    (model,) = api.http.get("/v1/models", params={"project": "search"}).json()["models"]
    assert model["aliases"] == [moved.json()]
    shown = api.http.get("/v1/models/minilm").json()
    assert [one["digest"] for one in shown["versions"]] == [digest]
    assert api.http.get("/v1/models/minilm/versions/prod").json()["digest"] == digest
    assert api.http.get("/v2/relaxd/models/minilm/tags/list").json()["tags"] == ["prod", "v1"]
    assert api.http.delete("/v1/models/minilm/versions/1").status_code == 409
    assert api.http.delete("/v1/models/minilm/aliases/prod").status_code == 204
    assert api.http.delete("/v1/models/minilm/versions/1").status_code == 204
    assert api.http.delete("/v1/models/minilm").status_code == 204
    assert api.http.get("/v1/models/minilm").json()["code"] == "registry.unknown"
    noted = [entry["action"] for entry in api.http.get("/v1/audit").json()["entries"]]
    assert noted.count("alias.move") == 1
    assert {"model.register", "model.describe", "alias.remove", "model.remove"} <= set(noted)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"digest": ABSENT, "job": "0" * 16}, 422),
        ({"digest": ABSENT}, 404),
        ({"job": "0" * 16}, 404),
        ({"digest": ABSENT, "labels": {str(n): "" for n in range(21)}}, 422),
        ({"digest": ABSENT, "labels": {"k": "v" * 201}}, 422),
        ({"digest": ABSENT, "notes": "n" * 2001}, 422),
    ],
)
def test_what_cannot_be_registered(api, body, status):
    answer = api.http.post("/v1/models/net/versions", json=body)
    assert answer.status_code == status, answer.text
    assert api.http.get("/v1/models/net").status_code == 404


@pytest.mark.parametrize("alias", ["latest", "1", "Prod", "a" * 61])
def test_names_that_no_alias_may_have(api, alias):
    answer = api.http.put(f"/v1/models/net/aliases/{alias}", json={"version": "1"})
    assert answer.status_code == 422


def test_moving_an_alias_takes_push_and_removing_a_model_admin(tmp_path):
    with house(tmp_path) as service:
        reader, pusher = (
            service.client("a", Scope.READ),
            service.client("a", Scope.PUSH, Scope.READ),
        )
        digest = "sha256:" + "0" * 64
        path = "/v1/models/net"
        body = {"digest": digest}
        assert reader.post(f"{path}/versions", json=body).status_code == 403
        assert reader.put(f"{path}/aliases/prod", json={"version": "1"}).status_code == 403
        assert pusher.post(f"{path}/versions", json=body).status_code == 404
        assert pusher.delete(path).status_code == 403
        assert reader.get("/v1/models").json() == {"models": []}
