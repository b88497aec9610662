import json

import httpx
import pytest

from service.adapters.issuer_documents import LARGEST, IssuerDocuments
from service.adapters.issuer_keys import FRESH_S, PAUSE_S, STALE_S, IssuerKeys
from service.adapters.oidc import Issuer, read_issuers
from service.errors import InvalidSettings
from service.identity import Scope
from tests.service.fakes import FakeClock
from tests.service.issuer import EC, RSA, public

ENTRY = {"issuer": "https://ci.example", "audience": "x", "tenant": "a", "scopes": ["read"]}
URL = "https://ci.example/keys"


class Remote:
    """The issuer's web server; an answer that is an exception is raised."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers: dict[str, object] = {
            "https://ci.example/.well-known/openid-configuration": {
                "issuer": "https://ci.example",
                "jwks_uri": URL,
            },
            URL: {"keys": [public(RSA, "one")]},
        }

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(str(request.url))
        answer = self.answers.get(str(request.url))
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, httpx.Response):
            return answer
        return httpx.Response(404) if answer is None else httpx.Response(200, json=answer)


@pytest.fixture
def remote():
    return Remote()


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def keys(remote, clock):
    with httpx.Client(transport=httpx.MockTransport(remote)) as http:
        yield IssuerKeys(IssuerDocuments(http), clock)


@pytest.fixture
def issuer():
    return Issuer.model_validate(ENTRY)


def test_keys_are_found_at_the_issuer_and_kept(keys, issuer, remote):
    assert all(keys.key(issuer, "one") for _ in range(5))
    assert len(remote.asked) == 2


def test_a_new_key_is_looked_for_but_not_more_often_than_the_pause(keys, issuer, remote, clock):
    keys.key(issuer, "one")
    remote.answers[URL] = {"keys": [public(RSA, "one"), public(EC, "two")]}
    assert keys.key(issuer, "two") is None
    clock.advance(PAUSE_S)
    assert keys.key(issuer, "two")
    asked = len(remote.asked)
    for number in range(100):
        assert keys.key(issuer, f"made up {number}") is None
    assert len(remote.asked) == asked


def test_old_keys_are_good_for_a_day_while_the_issuer_is_away(keys, issuer, remote, clock):
    assert keys.key(issuer, "one")
    remote.answers[URL] = httpx.ConnectError("away")
    clock.advance(FRESH_S + 1)
    assert keys.key(issuer, "one")
    clock.advance(STALE_S - FRESH_S - 2)
    assert keys.key(issuer, "one")
    clock.advance(PAUSE_S)
    assert keys.key(issuer, "one") is None
    remote.answers[URL] = {"keys": [public(RSA, "one")]}
    clock.advance(PAUSE_S)
    assert keys.key(issuer, "one")


def test_a_key_that_was_withdrawn_is_no_longer_good(keys, issuer, remote, clock):
    assert keys.key(issuer, "one")
    remote.answers[URL] = {"keys": [public(EC, "two")]}
    clock.advance(FRESH_S + 1)
    assert keys.key(issuer, "one") is None


SECRET = {"kty": "oct", "kid": "one", "k": "c2VjcmV0"}


@pytest.mark.parametrize(
    "answer",
    [
        {"keys": [SECRET]},
        {"keys": [public(RSA, "one", use="enc")]},
        {"keys": [{"kty": "RSA", "kid": "one"}]},
        {"keys": [{"kty": "new", "kid": "one"}, "text", None]},
        {"keys": [public(RSA, "one")] * 101},
        {"keys": "one"},
        ["keys"],
        httpx.Response(500),
        httpx.Response(302, headers={"Location": "https://evil.example"}),
        httpx.Response(200, content=b"no JSON"),
        httpx.Response(200, content=b"[" * 100_000),
        httpx.Response(200, content=json.dumps({"x": "x" * LARGEST}).encode()),
        httpx.ReadTimeout("slow"),
    ],
    ids=[
        "secret",
        "for encryption",
        "without numbers",
        "of no known kind",
        "too many",
        "no list",
        "no object",
        "500",
        "redirected",
        "no JSON",
        "deep JSON",
        "too large",
        "slow",
    ],
)
def test_what_is_no_key_opens_nothing(keys, issuer, remote, answer):
    remote.answers[URL] = answer
    assert keys.key(issuer, "one") is None
    assert remote.asked[-1] == URL


@pytest.mark.parametrize(
    "document",
    [
        {"issuer": "https://evil.example", "jwks_uri": URL},
        {"issuer": "https://ci.example"},
        {"issuer": "https://ci.example", "jwks_uri": "http://ci.example/keys"},
        {"issuer": "https://ci.example", "jwks_uri": "file:///etc/passwd"},
    ],
)
def test_a_discovery_that_leads_elsewhere_is_not_followed(keys, issuer, remote, document):
    remote.answers["https://ci.example/.well-known/openid-configuration"] = document
    assert keys.key(issuer, "one") is None
    assert URL not in remote.asked


class TestFile:
    def test_it_is_toml_or_json(self, tmp_path):
        toml = tmp_path / "issuers.toml"
        toml.write_text(
            '[[issuer]]\nissuer = "https://ci.example"\naudience = "x"\ntenant = "a"\n'
            'scopes = ["read"]\nclaims = { repository = "acme/*" }\n'
        )
        (tmp_path / "issuers.json").write_text(json.dumps({"issuer": [ENTRY]}))
        (entry,) = read_issuers(toml)
        assert (entry.scopes, entry.algorithms) == (frozenset({Scope.READ}), ("RS256",))
        assert read_issuers(tmp_path / "issuers.json")[0].issuer == entry.issuer

    @pytest.mark.parametrize(
        "change",
        [
            {"algorithms": ["HS256"]},
            {"algorithms": ["none"]},
            {"algorithms": []},
            {"scopes": ["everything"]},
            {"scopes": []},
            {"audience": ""},
            {"issuer": "ci.example"},
            {"tenant": "No Tenant"},
            {"clams": {}},
            {"client_id": "another"},
            {"login_scopes": ["two words"]},
        ],
    )
    def test_a_mistake_is_named(self, tmp_path, change):
        path = tmp_path / "issuers.json"
        path.write_text(json.dumps({"issuer": [ENTRY | change]}))
        with pytest.raises(InvalidSettings, match="RELAXD_OIDC_ISSUERS"):
            read_issuers(path)

    def test_so_is_a_file_that_is_not_there(self, tmp_path):
        with pytest.raises(InvalidSettings, match="FileNotFoundError"):
            read_issuers(tmp_path / "absent.toml")


@pytest.mark.parametrize(
    ("wanted", "value", "fits"),
    [
        ("acme/*", "acme/x", True),
        ("acme/*", "acme-evil/x", False),
        ("acme/*", None, False),
        ("acme/*", "Acme/x", False),
        ("dev", ["ops", "dev"], True),
        ("dev", [["dev"]], False),
        ("*", {"a": 1}, False),
        ("1", True, False),
        ("42", 42, True),
        (("a", "b"), "b", True),
        ((), "b", False),
    ],
)
def test_claims_fit_exactly_or_by_a_pattern(wanted, value, fits):
    entry = Issuer.model_validate(ENTRY | {"claims": {"c": wanted}})
    assert entry.matches({} if value is None else {"c": value}) is fits
