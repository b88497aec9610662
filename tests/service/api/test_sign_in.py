"""Signing people in at an issuer, without a browser: what the service trades, and refuses."""

import base64
import hashlib
import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.usecases.tenants import tenants
from tests.service.live import Live, live
from tests.service.login_issuer import CLIENT, LoginIssuer, serve_login
from tests.support import plain_http

BACK = "https://relaxd.example/"


@pytest.fixture
def issuer() -> Iterator[LoginIssuer]:
    with serve_login() as running:
        yield running


def entry(issuer: LoginIssuer, **changes: Any) -> dict[str, Any]:
    """An entry that takes everybody of a company."""
    return {
        "issuer": issuer.url,
        "client_id": CLIENT,
        "claims": {"email": "*@acme.example"},
        "login_scopes": ["email"],
        "tenant": "a",
        "scopes": ["read", "submit"],
        **changes,
    }


@pytest.fixture
def trusting(issuer: LoginIssuer, tmp_path: Path) -> Iterator[Live]:
    path = tmp_path / "issuers.json"
    rows = [entry(issuer), entry(issuer, claims={"groups": "ops"}, login_scopes=["groups"])]
    path.write_text(json.dumps({"issuer": rows}))
    with live(tmp_path, token="operator", oidc_issuers=path) as running:
        tenants.create(running.services.core, "a")
        yield running


@pytest.fixture
def visitor(trusting: Live) -> Iterator[httpx.Client]:
    with plain_http.Client(base_url=trusting.url, timeout=20) as client:
        yield client


def begin(issuer: LoginIssuer) -> dict[str, str]:
    """The body that ends a sign-in whose code the issuer has just given."""
    verifier = secrets.token_urlsafe(32)
    digest = hashlib.sha256(verifier.encode()).digest()
    query = {
        "state": "s",
        "nonce": "n",
        "client_id": CLIENT,
        "redirect_uri": BACK,
        "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
    }
    address = issuer.authorize(query)
    code = httpx.URL(address).params["code"]
    return {
        "issuer": issuer.url,
        "client_id": CLIENT,
        "code": code,
        "verifier": verifier,
        "redirect_uri": BACK,
    }


def test_a_code_becomes_a_token_that_the_service_takes(
    issuer: LoginIssuer, visitor: httpx.Client
) -> None:
    (login,) = visitor.get("/v1/sign-in").json()["logins"]
    assert login == {
        "issuer": issuer.url,
        "client_id": CLIENT,
        "scopes": ["openid", "email", "groups"],
        "authorization_url": f"{issuer.url}/authorize",
    }
    token = visitor.post("/v1/sign-in", json=begin(issuer)).json()["token"]
    shown = visitor.get("/v1/whoami", headers={"Authorization": f"Bearer {token}"}).json()
    assert (shown["tenant"], shown["name"], shown["method"]) == ("a", "ada", "oidc")
    operator = {"Authorization": "Bearer operator"}
    (noted,) = visitor.get("/v1/audit", headers=operator, params={"tenant": "a"}).json()["entries"]
    assert (noted["principal"], noted["action"], noted["subject"], noted["outcome"]) == (
        "ada",
        "sign-in",
        issuer.url,
        "done",
    )


def test_a_code_is_good_once_and_for_whoever_has_the_verifier(
    issuer: LoginIssuer, visitor: httpx.Client
) -> None:
    body = begin(issuer)
    other = visitor.post("/v1/sign-in", json=body | {"verifier": secrets.token_urlsafe(32)})
    assert (other.status_code, other.json()["code"]) == (403, "sign_in.refused")
    assert other.json()["detail"] == f"{issuer.url} refused the sign-in: invalid_grant"
    body = begin(issuer)
    assert visitor.post("/v1/sign-in", json=body).status_code == 200
    assert visitor.post("/v1/sign-in", json=body).status_code == 403


@pytest.mark.parametrize(
    "changes",
    [
        {"email": "eve@evil.example"},
        {"email": None},
        {"email": True},
        {"aud": "another"},
        {"exp": 1},
        {"iss": "https://evil.example"},
    ],
)
def test_a_token_that_no_entry_takes_signs_nobody_in(
    issuer: LoginIssuer, visitor: httpx.Client, changes: dict[str, Any]
) -> None:
    issuer.changes = changes
    answer = visitor.post("/v1/sign-in", json=begin(issuer))
    assert (answer.status_code, answer.json()["code"]) == (403, "sign_in.refused")
    assert "no entry of RELAXD_OIDC_ISSUERS takes your account" in answer.json()["detail"]
    assert "token" not in answer.json()


def test_only_configured_issuers_are_asked(issuer: LoginIssuer, visitor: httpx.Client) -> None:
    for change in ({"issuer": "http://127.0.0.1:9"}, {"client_id": "another"}):
        answer = visitor.post("/v1/sign-in", json=begin(issuer) | change)
        assert (answer.status_code, answer.json()["code"]) == (404, "sign_in.unknown")
    assert issuer.traded == []


def test_a_confidential_client_sends_its_secret(issuer: LoginIssuer, tmp_path: Path) -> None:
    issuer.secret = "s3cret/+"
    path = tmp_path / "issuers.json"
    path.write_text(
        json.dumps({"issuer": [entry(issuer, client_secret="s3cret/+", tenant="default")]})
    )
    with live(tmp_path, oidc_issuers=path) as running:
        assert running.http.post("/v1/sign-in", json=begin(issuer)).status_code == 200
        issuer.secret = "another"
        assert running.http.post("/v1/sign-in", json=begin(issuer)).status_code == 403


def test_an_issuer_that_is_away(issuer: LoginIssuer, visitor: httpx.Client, tmp_path: Path) -> None:
    issuer.discovery = lambda: {"issuer": "https://evil.example"}  # type: ignore[method-assign]
    (login,) = visitor.get("/v1/sign-in").json()["logins"]
    assert login["authorization_url"] is None
    answer = visitor.post("/v1/sign-in", json=begin(issuer))
    assert (answer.status_code, answer.json()["code"]) == (503, "sign_in.unavailable")
    assert answer.json()["retryable"]


@pytest.mark.parametrize("url", ["javascript:alert(1)", "http://login.acme.example/authorize", ""])
def test_the_browser_is_sent_to_https_alone(
    issuer: LoginIssuer, visitor: httpx.Client, url: str
) -> None:
    usual = issuer.discovery()
    issuer.discovery = lambda: usual | {"authorization_endpoint": url}  # type: ignore[method-assign]
    (login,) = visitor.get("/v1/sign-in").json()["logins"]
    assert login["authorization_url"] is None


def test_a_service_without_issuers_lists_none(tmp_path: Path) -> None:
    with live(tmp_path, token="operator") as running:
        answer = plain_http.get(f"{running.url}/v1/sign-in")
        assert answer.json() == {"logins": []}
