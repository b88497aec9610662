"""Web pages read bundles if the service names their origin, and nothing else."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.errors import InvalidSettings
from service.settings import read_settings
from tests.service.live import Live, live

PAGE = "https://app.example"
CONTENT = b"a file of a bundle"
DIGEST = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
BLOB = f"/v2/relaxd/bundles/blobs/{DIGEST}"
PREFLIGHT = {
    "Access-Control-Request-Method": "GET",
    "Access-Control-Request-Headers": "authorization",
}


def push(running: Live) -> None:
    url = f"/v2/relaxd/bundles/blobs/uploads/?digest={DIGEST}"
    assert running.http.post(url, content=CONTENT).status_code == 201


@pytest.fixture(scope="module")
def sharing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("sharing")
    with live(folder, pull_origins=f"{PAGE} http://127.0.0.1:9000", token="secret") as running:
        running.http.headers["Authorization"] = "Bearer secret"
        push(running)
        yield running


def test_nothing_is_allowed_unless_the_service_says_so(api: Live) -> None:
    push(api)
    answer = api.http.get(BLOB, headers={"Origin": PAGE})
    assert (answer.status_code, answer.content) == (200, CONTENT)
    asked = api.http.options(BLOB, headers={"Origin": PAGE} | PREFLIGHT)
    assert asked.status_code == 405
    for one in (answer, asked):
        assert not [name for name in one.headers if name.startswith("access-control")]


def test_a_named_page_reads_a_blob(sharing: Live) -> None:
    answer = sharing.http.get(BLOB, headers={"Origin": PAGE})
    assert answer.content == CONTENT
    assert answer.headers["Access-Control-Allow-Origin"] == PAGE
    assert "Origin" in answer.headers["Vary"]
    assert "Docker-Content-Digest" in answer.headers["Access-Control-Expose-Headers"]
    assert "Access-Control-Allow-Credentials" not in answer.headers


def test_a_browser_asks_without_the_token(sharing: Live) -> None:
    asking = {"Origin": PAGE, "Authorization": ""} | PREFLIGHT
    answer = sharing.http.options(BLOB, headers=asking)
    assert answer.status_code == 200
    assert answer.headers["Access-Control-Allow-Origin"] == PAGE
    assert "Authorization" in answer.headers["Access-Control-Allow-Headers"]
    assert "Access-Control-Allow-Credentials" not in answer.headers


def test_a_page_reads_why_it_is_refused(sharing: Live) -> None:
    answer = sharing.http.get(BLOB, headers={"Origin": PAGE, "Authorization": ""})
    assert answer.status_code == 401
    assert answer.headers["Access-Control-Allow-Origin"] == PAGE


def test_other_pages_read_nothing(sharing: Live) -> None:
    for origin in ("https://evil.example", f"{PAGE}.evil.example", "null"):
        answer = sharing.http.get(BLOB, headers={"Origin": origin})
        assert "Access-Control-Allow-Origin" not in answer.headers
        asked = sharing.http.options(BLOB, headers={"Origin": origin} | PREFLIGHT)
        assert asked.status_code == 400


@pytest.mark.parametrize("method", ["PUT", "POST", "PATCH", "DELETE"])
def test_a_named_page_only_reads(sharing: Live, method: str) -> None:
    asking = {"Origin": PAGE, "Access-Control-Request-Method": method}
    assert sharing.http.options(BLOB, headers=asking).status_code == 400
    sent = sharing.http.request(method, BLOB, headers={"Origin": PAGE})
    assert sent.status_code == 403


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/tokens", "/v1/whoami", "/metrics", "/healthz"])
def test_a_named_page_reads_bundles_alone(sharing: Live, path: str) -> None:
    answer = sharing.http.get(path, headers={"Origin": PAGE})
    assert answer.status_code == 200
    assert "Access-Control-Allow-Origin" not in answer.headers


def test_a_named_page_reads_what_is_in_an_artifact(sharing: Live) -> None:
    answer = sharing.http.get(f"/v1/artifacts/{DIGEST}", headers={"Origin": PAGE})
    assert answer.headers["Access-Control-Allow-Origin"] == PAGE


def test_any_page_can_be_allowed(tmp_path: Path) -> None:
    with live(tmp_path, pull_origins="*") as running:
        push(running)
        answer = running.http.get(BLOB, headers={"Origin": "https://anyone.example"})
        assert answer.headers["Access-Control-Allow-Origin"] == "*"
        assert "Access-Control-Allow-Credentials" not in answer.headers


@pytest.mark.parametrize("wrong", ["https://app.example/", "app.example", "https://*.example"])
def test_what_no_browser_sends_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidSettings, match="RELAXD_PULL_ORIGINS"):
        read_settings(pull_origins=wrong)
