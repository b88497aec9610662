"""Requests are bounded before they are parsed, and malformed ones are problems of theirs."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.service.live import Live, live

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("small")
    with live(folder, max_request_bytes=4000, max_request_values=100, max_targets=3) as running:
        yield running


def ways(api: Live, document: dict[str, Any]) -> Iterator[httpx.Response]:
    """The answers to a request as a document and in both kinds of forms."""
    model = api.upload()
    for path in ("/v1/jobs", "/v1/inspect"):
        yield api.http.post(path, json={"model": model, **document}, params={"wait": 20})
    text = json.dumps(document)
    for part in ((None, text), ("request.json", text)):
        files: dict[str, Any] = {"model": ("m.onnx", b"a model"), "request": part}
        yield api.http.post("/v1/compile", files=files)


def test_a_request_may_have_so_many_bytes(small: Live) -> None:
    for answer in ways(small, {"inputs": {"x": "x" * 5000}}):
        if answer.request.url.path == "/v1/compile" and answer.status_code == 400:
            assert answer.json()["code"] == "http.malformed_form"
        else:
            assert (answer.status_code, answer.json()["code"]) == (413, "http.body_too_large")
            assert "RELAXD_MAX_REQUEST_BYTES" in answer.json()["hint"]


@pytest.mark.parametrize(
    "document",
    [
        {"targets": [[]] * 200},
        {"dims": {f"d{number}": 1 for number in range(200)}},
        {"inputs": {"x": f"float32[{','.join(['n'] * 200)}]"}},
    ],
)
def test_a_request_may_have_so_many_values(small: Live, document: dict[str, Any]) -> None:
    for answer in ways(small, document):
        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (422, "request.invalid")
        assert "RELAXD_MAX_REQUEST_VALUES" in problem["hint"]


def test_a_request_may_name_so_many_targets(small: Live) -> None:
    targets = ["native", "x86-64-v2", "x86-64-v3", "aarch64"]
    for answer in ways(small, {"targets": targets}):
        assert (answer.status_code, answer.json()["field"]) == (422, "targets")
        assert "RELAXD_MAX_TARGETS" in answer.json()["hint"]
    for answer in ways(small, {"targets": targets[:3]}):
        assert answer.is_success


@pytest.mark.parametrize(
    "document",
    [
        {"consts": {"a": "x\0"}},
        {"consts": {"\0": 1}},
        {"inputs": {"x\0": "float32[n]"}},
        {"dims": {"n": "1:\0"}},
        {"dims": {"n": "9" * 5000}},
        {"dims": {"n": "1:" + "9" * 4000}},
        {"dims": {"n": {"max": 1 << 63}}},
        {"shapes": {"y": ["\0"]}},
        {"targets": ["native\0"]},
    ],
)
def test_what_no_database_takes_is_refused(api: Live, document: dict[str, Any]) -> None:
    for answer in ways(api, document):
        assert (answer.status_code, answer.json()["code"]) == (422, "request.invalid")


@pytest.mark.parametrize(
    "text",
    [
        r'{"consts": {"\ud800": 1}}',
        r'{"consts": {"a": "\udfff"}}',
        '{"consts": {"a": ' + "9" * 5000 + "}}",
        "[" * 100_000,
        "\0",
        "",
    ],
)
def test_what_is_no_json_is_refused(api: Live, text: str) -> None:
    for path in ("/v1/jobs", "/v1/inspect"):
        answer = api.http.post(path, content=text.encode(), headers=JSON)
        assert (answer.status_code, answer.json()["code"]) == (422, "request.invalid")


@pytest.mark.parametrize("body", ["{}".encode("utf-16"), b'{"consts": {"a": "\xff"}}'])
def test_json_is_utf_8(api: Live, body: bytes) -> None:
    assert api.http.post("/v1/jobs", content=body, headers=JSON).status_code == 422


@pytest.mark.parametrize("kind", ["text/plain", "", "application/x-www-form-urlencoded"])
def test_a_document_says_that_it_is_json(api: Live, kind: str) -> None:
    answer = api.http.post("/v1/jobs", content=b"{}", headers={"Content-Type": kind})
    assert (answer.status_code, answer.json()["code"]) == (415, "http.unsupported_media_type")


@pytest.mark.parametrize(
    "charset", ["utf-7", "idna", "unicode_escape", "hex", "rot13", "x\xff", "utf-16", '"a\\"b"']
)
def test_a_form_is_utf_8(api: Live, charset: str) -> None:
    body = (
        b'--b\r\nContent-Disposition: form-data; name="request"\r\n\r\n{"x": "+2AA-"}\r\n--b--\r\n'
    )
    kind = f"multipart/form-data; boundary=b; charset={charset}".encode("latin-1")
    answer = api.http.post("/v1/compile", content=body, headers={b"Content-Type": kind})
    assert (answer.status_code, answer.json()["code"]) == (400, "http.malformed_form")


def test_a_file_name_is_cut_and_clean(api: Live) -> None:
    part = f'form-data; name="model"; filename="{"n" * 250}\0\xff.onnx"'.encode("latin-1")
    body = b"--b\r\nContent-Disposition: " + part + b"\r\n\r\na model\r\n--b--\r\n"
    kind = {"Content-Type": "multipart/form-data; boundary=b"}
    name = api.http.post("/v1/compile", content=body, headers=kind).json()["name"]
    assert name == "n" * 250 + "\\x00\xff"


@pytest.mark.parametrize("path", ["/v1/jobs/%00", "/v1/jobs/%ff", "/v1/jobs/%ED%A0%80"])
def test_a_jobs_id_that_is_no_text(api: Live, path: str) -> None:
    assert api.http.get(path).json()["code"] == "job.unknown"


def test_a_name_with_a_nul(api: Live) -> None:
    answer = api.http.post("/v1/jobs", json={"model": api.upload()}, params={"name": "a\0"})
    assert (answer.status_code, answer.json()["field"]) == (422, "name")
