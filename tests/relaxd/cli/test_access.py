"""`relaxd token`, `relaxd tenant` and `relaxd audit` against a guarded service."""

import pytest

from tests.service.tenancy import OPERATOR, house


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    with house(tmp_path_factory.mktemp("access")) as running:
        yield running.live


@pytest.fixture
def operator(served, monkeypatch):
    monkeypatch.setenv("RELAXD_TOKEN", OPERATOR)
    return served


def test_a_token_is_made_used_rotated_and_revoked(operator, monkeypatch):
    created = operator("token", "create", "ci", "--scope", "read", "--tenant", "a", "--days", "9")
    assert (created.code, created.out.startswith("relaxd_"), "not shown again" in created.err) == (
        0,
        True,
        True,
    )
    (token,) = operator("token", "list", "--tenant", "a", "--json").json["tokens"]
    assert (token["name"], token["scopes"]) == ("ci", ["read"])
    assert "ci" in operator("token", "list", "--tenant", "a").out
    assert operator("jobs", "list", "--token", created.out.strip()).code == 0
    new = operator("token", "rotate", token["id"], "--tenant", "a").out.strip()
    assert operator("jobs", "list", "--token", created.out.strip()).code == 2
    assert operator("jobs", "list", "--token", new).code == 0
    assert operator("token", "revoke", new.split("_")[1], "--tenant", "a").code == 0
    assert operator("jobs", "list", "--token", new).code == 2
    assert created.out.strip() not in operator("audit", "--json").out


def test_a_scope_that_is_none_is_refused(operator):
    refused = operator("token", "create", "ci", "--scope", "everything")
    assert (refused.code, "one of submit" in refused.err) == (2, True)


def test_a_tenant_is_made_and_limited(operator):
    assert operator("tenant", "create", "vision").code == 0
    limits = ("--stored-mb", "10", "--running", "2", "--requests", "none", "--share-cache")
    (tenant,) = operator("tenant", "set", "vision", *limits, "--json").json["tenants"]
    retained = ("stored_bytes", "running", "requests", "shares_cache", "queued")
    assert [tenant[name] for name in retained] == [10 << 20, 2, None, True, None]
    assert "vision" in operator("tenant", "list").out
    assert operator("tenant", "set", "vision", "--running", "many").code == 2
    assert operator("tenant", "set", "nobody", "--running", "1").code == 2


def test_the_audit_log_is_shown(operator):
    operator("tenant", "create", "audited")
    # A refusal is noted behind its answer, and may come after what was asked next.
    shown = operator("audit", "--limit", "3", "--json").json["entries"]
    assert len(shown) == 3
    assert ("tenant.create", "audited") in {(one["action"], one["subject"]) for one in shown}
    assert "tenant.create" in operator("audit", "--limit", "20").out


def test_a_tenant_is_deleted_by_name(operator):
    operator("tenant", "create", "gone")
    assert operator("tenant", "delete", "gone", "--yes").out == (
        "gone is deleted, with 0 jobs, 0 tokens and 0 tags\n"
    )
    again = operator("tenant", "delete", "gone", "--yes")
    assert (again.code, "there is no tenant 'gone'" in again.err) == (2, True)
