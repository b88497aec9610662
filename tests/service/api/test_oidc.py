"""Forty forged tokens, none of which opens anything, and what does."""

from collections.abc import Iterator
from typing import Any

import pytest

from service.adapters.oidc import Issuer
from service.identity import DEFAULT, Scope
from service.usecases.tenants import tokens
from tests.service.forging import FORGED, STRANGER, World, status_of, trusting
from tests.service.issuer import AUDIENCE, EC
from tests.support import plain_http


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with trusting(tmp_path_factory.mktemp("oidc")) as opened:
        yield opened


def test_there_are_forty_and_more() -> None:
    assert len(FORGED) >= 40


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_token_opens_nothing(world: World, name: str) -> None:
    assert status_of(world, FORGED[name](world)) == 401


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"key": EC, "alg": "ES256", "kid": "ec"},
        {"ref": "refs/tags/v1.2"},
        {"aud": ["https://other.example", AUDIENCE]},
        {"nbf": None},
    ],
)
def test_a_token_that_meets_an_entry_is_its_tenants(world: World, changes: dict[str, Any]) -> None:
    client = world.house.with_token(world.token(**changes))
    shown = client.get("/v1/whoami").json()
    assert (shown["tenant"], shown["name"], shown["method"]) == ("a", "repo:acme/models", "oidc")
    assert shown["scopes"] == ["read", "submit"]
    assert client.get("/v1/tokens").status_code == 403
    assert client.get("/v1/tenants").status_code == 403


def test_registry_clients_send_it_as_a_password(world: World) -> None:
    url = f"{world.house.live.url}/v2/"
    assert plain_http.get(url, auth=("anyone", world.token())).status_code == 200
    assert plain_http.get(url, auth=("anyone", world.token(STRANGER))).status_code == 401


def test_made_up_key_ids_cost_the_issuer_no_requests(world: World) -> None:
    before = len(world.issuer.asked)
    for number in range(30):
        assert status_of(world, world.token(kid=f"made up {number}")) == 401
    assert len(world.issuer.asked) <= before + 2


def test_tokens_of_the_default_tenant_are_not_the_operators(world: World) -> None:
    text = tokens.create(world.house.core, DEFAULT, "x", [Scope.READ]).text
    assert world.house.with_token(text).get("/v1/tenants").status_code == 403


@pytest.mark.parametrize(
    ("value", "wanted"), [(True, "true"), (False, "false"), ([True, "x"], "true"), (123456, "12*")]
)
def test_a_claim_that_is_no_text_reads_as_in_json(value: object, wanted: str) -> None:
    entry = Issuer(
        issuer="https://login.example",
        audience="relaxd",
        claims={"verified": wanted},
        tenant="a",
        scopes=frozenset({Scope.READ}),
    )
    assert entry.matches({"verified": value})
    assert not entry.matches({"verified": not value})
    assert not entry.matches({"verified": None})
    assert not entry.matches({})
