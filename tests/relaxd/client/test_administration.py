"""The client of a tenant finds its own repositories; administrators manage tokens and tenants."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from relaxd import Client
from relaxd.errors import ServerError
from service.identity import Scope
from service.usecases.tenants import tokens
from tests.service.tenancy import OPERATOR, House, house


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house(tmp_path_factory.mktemp("administration")) as running:
        yield running


@pytest.fixture
def operator(guarded: House) -> Iterator[Client]:
    with Client(guarded.live.url, token=OPERATOR) as client:
        yield client


def test_a_tenants_client_submits_and_pulls_in_its_own_namespace(
    guarded: House, tmp_path: Path
) -> None:
    scopes = [Scope.SUBMIT, Scope.READ, Scope.PULL]
    text = tokens.create(guarded.core, "a", "ci", scopes).text
    with Client(guarded.live.url, token=text) as client:
        assert client.whoami()["namespace"] == "a"
        job = client.compile(b"a model of a").wait()
        folder = job.pull(directory=tmp_path / "by-job")
        assert (folder / "model.so").is_file()
        digest = job.bundle()
        assert (client.pull(digest, tmp_path / "by-digest") / "model.so").is_file()
        assert (client.pull(job.id, tmp_path / "by-id") / "model.so").is_file()
        assert client.pull(f"a/bundles:job-{job.id}", tmp_path / "by-tag", target="native")
        assert client.model(job.document["model"]) == b"a model of a"
        with pytest.raises(ServerError) as refused:
            client.pin(digest)
        assert refused.value.status == 403


def test_operators_make_tenants_and_their_tokens(guarded: House, operator: Client) -> None:
    assert operator.create_tenant("vision")["weight"] == 1
    changed = operator.set_tenant("vision", running=2, stored_bytes=None)
    assert (changed["running"], changed["stored_bytes"]) == (2, None)
    assert "vision" in [tenant["name"] for tenant in operator.tenants()]
    created = operator.create_token("ci", ["read", "admin"], days=30, tenant="vision")
    with Client(guarded.live.url, token=created["token"]) as admin:
        assert [token["id"] for token in admin.tokens()] == [created["id"]]
        new = admin.rotate_token(created["id"], overlap_hours=1)
        assert admin.revoke_token(created["id"])["revoked_at"]
        with pytest.raises(ServerError) as ended:
            admin.whoami()
        assert ended.value.status == 401
    with Client(guarded.live.url, token=new["token"]) as admin:
        actions = [entry["action"] for entry in admin.audit()]
    assert actions == ["token.revoke", "token.rotate"]
    assert operator.audit(limit=1, tenant="vision")[0]["action"] == "token.revoke"
