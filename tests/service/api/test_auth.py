import base64
from collections.abc import Iterator

import pytest

from tests.service.live import Live, live
from tests.support import plain_http


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("guarded"), token="s3cret") as running:
        yield running


def basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"anyone:{password}".encode()).decode()


@pytest.mark.parametrize(
    "path", ["/v1/jobs", "/metrics", "/openapi.json", "/nonesuch", "/v1/artifacts/sha256:0"]
)
@pytest.mark.parametrize(
    "header",
    [
        None,
        "Bearer wrong",
        "Bearer",
        "Basic !!!",
        basic("wrong"),
        "Digest s3cret",
        "Bearer s3cret2",
    ],
)
def test_no_token_no_answer(guarded: Live, path: str, header: str | None) -> None:
    answer = plain_http.get(guarded.url + path, headers={"Authorization": header} if header else {})
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="relaxd"'
    assert answer.json()["code"] == "http.unauthorized"


@pytest.mark.parametrize("header", ["Bearer s3cret", "bearer s3cret", basic("s3cret")])
def test_the_token_opens(guarded: Live, header: str) -> None:
    for path in ("/v1/jobs", "/v2/", "/metrics"):
        assert (
            plain_http.get(guarded.url + path, headers={"Authorization": header}).status_code == 200
        )


def test_health_needs_none(guarded: Live) -> None:
    assert [plain_http.get(guarded.url + path).status_code for path in ("/healthz", "/readyz")] == [
        200,
        200,
    ]


def test_container_tooling_is_asked_for_a_password(guarded: Live) -> None:
    answer = plain_http.get(f"{guarded.url}/v2/")
    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, 'Basic realm="relaxd"')
    assert answer.json()["errors"][0]["code"] == "UNAUTHORIZED"
