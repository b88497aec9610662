"""Registries that ask for credentials, which docker's configuration has."""

import base64
import gzip
import json
from pathlib import Path

import httpx
import pytest

from relaxd.client.credentials import credentials
from relaxd.client.transport import Transport
from relaxd.errors import ServerError, ServerUnreachable

AUTH = base64.b64encode(b"ann:pass:word").decode()
BASIC = f"Basic {AUTH}"


@pytest.fixture(autouse=True)
def docker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in ("REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    return tmp_path / "config.json"


def test_written_credentials(docker: Path) -> None:
    assert credentials("reg.example") is None
    auths = {
        "https://reg.example/v2/": {"auth": AUTH},
        "other:5000": {"identitytoken": "t0"},
        "https://index.docker.io/v1/": {"auth": AUTH},
        "broken": {"auth": "%"},
    }
    docker.write_text(json.dumps({"auths": auths}))
    assert credentials("reg.example") == ("ann", "pass:word")
    assert credentials("other:5000") == ("<token>", "t0")
    assert credentials("registry-1.docker.io") == ("ann", "pass:word")
    assert credentials("broken") is None
    assert credentials("example") is None


def test_a_helper_is_asked(docker: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    helper = tmp_path / "docker-credential-vault"
    helper.write_text(
        '#!/bin/sh\nread host\necho "{\\"Username\\": \\"bob\\", \\"Secret\\": \\"for $host\\"}"\n'
    )
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    docker.write_text(json.dumps({"credHelpers": {"reg.example": "vault"}}))
    assert credentials("reg.example") == ("bob", "for reg.example")
    docker.write_text(json.dumps({"credsStore": "vault"}))
    assert credentials("any:1") == ("bob", "for any:1")
    docker.write_text(json.dumps({"credsStore": "nonesuch"}))
    assert credentials("any:1") is None


def fetch(registry: httpx.MockTransport, scheme: str = "https") -> list[int]:
    source = transport_to(registry, f"{scheme}://reg.example")
    accept = frozenset({401})
    return [source.request("GET", "/v2/a/blobs/x", accept=accept).status_code for _ in range(2)]


def transport_to(registry: httpx.MockTransport, url: str = "https://reg.example") -> Transport:
    source = Transport.of_registry(url, 5)
    source._http = httpx.Client(base_url=url, transport=registry)
    return source


def test_basic(docker: Path) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.headers.get("Authorization") == BASIC:
            return httpx.Response(200)
        return httpx.Response(401, headers={"WWW-Authenticate": 'Basic realm="here"'})

    assert fetch(httpx.MockTransport(answer)) == [401, 401]
    docker.write_text(json.dumps({"auths": {"reg.example": {"auth": AUTH}}}))
    assert fetch(httpx.MockTransport(answer)) == [200, 200]


def test_bearer(docker: Path) -> None:
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host == "auth.example":
            asked.append((dict(request.url.params), request.headers.get("Authorization")))
            return httpx.Response(200, json={"token": "tok"})
        if request.headers.get("Authorization") == "Bearer tok":
            return httpx.Response(200)
        challenge = 'Bearer realm="https://auth.example/t",service="reg",scope="repository:a:pull"'
        return httpx.Response(401, headers={"WWW-Authenticate": challenge})

    docker.write_text(json.dumps({"auths": {"reg.example": {"auth": AUTH}}}))
    assert fetch(httpx.MockTransport(answer)) == [200, 200]
    assert asked == [({"service": "reg", "scope": "repository:a:pull"}, BASIC)], "asked for once"


def test_credentials_do_not_leave_in_the_clear(docker: Path) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.host == "reg.example"
        challenge = 'Bearer realm="http://auth.example/t"'
        return httpx.Response(401, headers={"WWW-Authenticate": challenge})

    docker.write_text(json.dumps({"auths": {"reg.example": {"auth": AUTH}}}))
    with pytest.raises(ServerUnreachable, match="asks for credentials at http://"):
        fetch(httpx.MockTransport(answer))


CHALLENGE = {"WWW-Authenticate": 'Bearer realm="https://evil.example/t",service="s"'}


@pytest.mark.parametrize("challenge", [CHALLENGE, {"WWW-Authenticate": 'Basic realm="x"'}])
def test_where_a_registry_redirects_nobody_gets_its_credentials(
    docker: Path, challenge: dict[str, str]
) -> None:
    seen = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append((request.url.host, request.headers.get("Authorization")))
        if request.url.host == "cdn.example":
            return httpx.Response(401, headers=challenge)
        if "Authorization" not in request.headers:
            return httpx.Response(401, headers={"WWW-Authenticate": 'Basic realm="here"'})
        return httpx.Response(307, headers={"Location": "https://cdn.example/blob"})

    docker.write_text(json.dumps({"auths": {"reg.example": {"auth": AUTH}}}))
    source = transport_to(httpx.MockTransport(answer))
    with pytest.raises(ServerError) as refused:
        source.request("GET", "/v2/a/blobs/x")
    assert refused.value.status == 401
    assert seen == [("reg.example", None), ("reg.example", BASIC), ("cdn.example", None)]


def test_a_realm_that_redirects_is_not_followed(docker: Path) -> None:
    """A refresh token stands in the body of the request, which redirects would carry on."""
    seen = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append((request.url.host, request.content))
        if request.url.host == "evil.example":
            return httpx.Response(308, headers={"Location": "https://other.example/t"})
        return httpx.Response(401, headers=CHALLENGE)

    docker.write_text(json.dumps({"auths": {"reg.example": {"identitytoken": "secret"}}}))
    assert fetch(httpx.MockTransport(answer)) == [401, 401]
    assert {host for host, _ in seen} == {"reg.example", "evil.example"}


def test_a_token_goes_to_no_other_host(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append((str(request.url), request.headers.get("Authorization")))
        return httpx.Response(200, json={})

    service = Transport("http://relaxd.test:8484", token="secret")
    headers = {"Authorization": "Bearer secret"}
    mock = httpx.MockTransport(answer)
    service._http = httpx.Client(base_url=service.url, headers=headers, transport=mock)
    for url in (
        "/v1/x",
        "http://relaxd.test:8484/up",
        "http://evil.test/up",
        "http://relaxd.test/",
    ):
        service.request("PATCH", url)
    assert [header for _, header in seen] == ["Bearer secret", "Bearer secret", None, None]


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("https://reg.example/v2/a/blobs/x", "redirects more than 5 times"),
        ("http://reg.example/v2/a/blobs/x", "from https to http"),
        ("ftp://reg.example/x", "from https to ftp"),
    ],
)
def test_redirects_that_lead_nowhere_are_typed_errors(location: str, why: str) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(302, headers={"Location": location})

    with pytest.raises(ServerUnreachable, match=why):
        transport_to(httpx.MockTransport(answer)).request("GET", "/v2/a/blobs/x")


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_a_document_is_read_to_a_limit(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    content = bytes(100 << 20)
    if encoding == "gzip":
        content = gzip.compress(content)

    def answer(request: httpx.Request) -> httpx.Response:
        chunks = [content[start : start + 4096] for start in range(0, len(content), 4096)]
        return httpx.Response(200, headers={"Content-Encoding": encoding}, content=iter(chunks))

    with pytest.raises(ServerUnreachable, match="more than 1000 bytes"):
        transport_to(httpx.MockTransport(answer)).request("GET", "/v2/", limit=1000)


def test_content_that_is_not_as_encoded_is_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"Content-Encoding": "gzip"}, content=iter([b"no gzip"]))

    with pytest.raises(ServerUnreachable, match="no answer"):
        transport_to(httpx.MockTransport(answer)).request("GET", "/v2/")
