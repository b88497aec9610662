"""Names by which a service without a token may be called."""

import socket
from pathlib import Path

import pytest

from relaxd.http.hosts import KnownHosts
from tests.service.live import Live, live

OWN = ["localhost", "LOCALHOST.:8484", "a.localhost", "127.0.0.1:1", "[::1]:8484", "10.1.2.3"]
FOREIGN = ["evil.example", "127.0.0.1.evil.example:8484", "localhost.evil.example", "x y"]


@pytest.mark.parametrize("host", [*OWN, socket.gethostname(), "ci.example", ""])
def test_own_names_are_known(host: str) -> None:
    assert KnownHosts(["ci.example"]).has(host)


@pytest.mark.parametrize("host", FOREIGN)
def test_others_are_not(host: str) -> None:
    assert not KnownHosts(["ci.example"]).has(host)


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/whoami", "/v2/relaxd/x/tags/list", "/metrics"])
def test_a_name_that_was_made_to_lead_here_reads_nothing(api: Live, path: str) -> None:
    rebound = {"Host": "evil.example", "Origin": "http://evil.example"}
    answer = api.http.get(path, headers=rebound)
    assert answer.status_code == 421
    assert api.http.get(path, headers={"Host": "localhost"}).status_code == 200


def test_it_submits_nothing_either(api: Live) -> None:
    rebound = {"Host": "evil.example", "Origin": "http://evil.example"}
    files = {"model": ("m.onnx", b"a model")}
    answer = api.http.post("/v1/compile", files=files, headers=rebound)
    assert (answer.status_code, answer.json()["code"]) == (421, "http.unknown_host")
    assert "RELAXD_ALLOWED_HOSTS" in answer.json()["hint"]
    assert api.http.get("/v1/jobs").json()["jobs"] == []
    assert api.http.get("/healthz", headers=rebound).status_code == 200


def test_names_can_be_allowed_and_with_a_token_any_name_will_do(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with live(tmp_path / "a", allowed_hosts="ci.example") as running:
        assert running.http.get("/v1/jobs", headers={"Host": "ci.example:80"}).status_code == 200
        assert running.http.get("/v1/jobs", headers={"Host": "b.example"}).status_code == 421
    with live(tmp_path / "b", token="secret") as running:
        assert running.http.get("/v1/jobs", headers={"Host": "b.example"}).status_code == 200
