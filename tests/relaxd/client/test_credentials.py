"""Registries that ask for credentials, which docker's configuration has."""

import base64
import json
from pathlib import Path

import httpx
import pytest

from relaxd.client.credentials import RegistryAuth, credentials

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
    with httpx.Client(
        base_url=f"{scheme}://reg.example", transport=registry, auth=RegistryAuth("reg.example")
    ) as http:
        return [http.get("/v2/a/blobs/x").status_code for _ in range(2)]


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
    with pytest.raises(httpx.UnsupportedProtocol, match="asks for credentials at http://"):
        fetch(httpx.MockTransport(answer))
