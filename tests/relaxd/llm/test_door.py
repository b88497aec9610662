"""Requests that the endpoint refuses before it does any work; others are served meanwhile."""

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from relaxd.llm import Engine
from relaxd.llm.door import Access
from relaxd.llm.server import create_app
from relaxd.llm.text import Text
from tests.relaxd.llm.endpoints import serving
from tests.relaxd.llm.models import LETTERS, greedy
from tests.support import plain_http

EVIL = "https://evil.example"
ASKED = {"prompt": "abc", "max_tokens": 4, "temperature": 0}
DEEP = 60_000
CHAINED = "start: r0\n" + "".join(f"r{i}: r{i + 1}\n" for i in range(4000)) + 'r4000: "a"'


@pytest.fixture(scope="module")
def engine(language_models: dict[str, Path]) -> Iterator[Engine]:
    bundle, words = language_models["filled"], language_models["tokenizer"]
    with Engine.open(bundle, words, sequences=4, threads=1) as opened:
        yield opened


@pytest.fixture(scope="module")
def address(engine: Engine) -> Iterator[str]:
    with serving(create_app(engine, "tiny")) as url:
        yield url


def answer_to(prompt: str, count: int) -> str:
    tokens = greedy("filled", [LETTERS.index(letter) for letter in prompt], count)
    return "".join(LETTERS[token] for token in tokens if token < len(LETTERS))


def post(address: str, document: Any, **headers: str) -> httpx.Response:
    """Send a document, or the bytes of a body."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    fields = {"Content-Type": "application/json", **headers}
    return plain_http.post(f"{address}/v1/completions", content=body, headers=fields, timeout=120)


def code_of(answer: httpx.Response) -> str:
    return str(answer.json()["error"]["code"])


def check_served(address: str) -> None:
    answer = post(address, ASKED)
    assert answer.json()["choices"][0]["text"] == answer_to("abc", 4)


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Content-Type": "text/plain"}, 415, "http.unsupported_media_type"),
        ({"Content-Type": ""}, 415, "http.unsupported_media_type"),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415, "http.unsupported_media_type"),
        ({"Origin": EVIL}, 403, "http.foreign_origin"),
        ({"Origin": "null"}, 403, "http.foreign_origin"),
        ({"Origin": EVIL, "Host": "evil.example"}, 421, "http.unknown_host"),
        ({"Host": "evil.example"}, 421, "http.unknown_host"),
        ({"Host": "127.0.0.1.evil.example:80"}, 421, "http.unknown_host"),
        ({"Host": "localhost@evil.example"}, 421, "http.unknown_host"),
        ({"X-Long": "a" * 40_000}, 431, "http.header_too_large"),
    ],
)
def test_what_pages_make_browsers_send(
    address: str, headers: dict[str, str], status: int, code: str
) -> None:
    answer = post(address, ASKED, **headers)
    assert (answer.status_code, code_of(answer)) == (status, code)
    check_served(address)


def test_hosts_of_this_server(address: str, engine: Engine) -> None:
    port = httpx.URL(address).port
    for host in ("localhost", f"LOCALHOST:{port}", "127.0.0.1", f"[::1]:{port}", "10.0.0.7:99"):
        assert post(address, ASKED, Host=host, Origin=f"http://{host}").status_code == 200
    assert plain_http.get(f"{address}/healthz", headers={"Host": "evil.example"}).is_success
    read = plain_http.get(f"{address}/v1/models", headers={"Host": "evil.example"})
    assert (read.status_code, code_of(read)) == (421, "http.unknown_host")
    with serving(create_app(engine, "tiny", Access(hosts=frozenset({"Llm"})))) as url:
        assert post(url, ASKED, Host="llm:80").status_code == 200
        assert post(url, ASKED, Host="evil.example").status_code == 421


def test_a_key(engine: Engine) -> None:
    with serving(create_app(engine, "tiny", Access(key="s3cret"))) as url:
        for authorization in ("", "Bearer", "Bearer wrong", "Bearer s3cre", "Basic czNjcmV0"):
            refused = post(url, ASKED, Authorization=authorization)
            assert (refused.status_code, code_of(refused)) == (401, "invalid_api_key")
            assert refused.headers["WWW-Authenticate"].startswith("Bearer")
        assert plain_http.get(f"{url}/metrics").status_code == 401
        assert plain_http.get(f"{url}/health").status_code == 200
        key = {"Authorization": "Bearer s3cret"}
        # A page whose name was rebound has no key.
        answer = post(url, ASKED, Host="llm.example", **key)
        assert answer.json()["choices"][0]["text"] == answer_to("abc", 4)
        assert plain_http.get(f"{url}/metrics", headers=key).status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        b'{"prompt": "\\ud800"}',
        b'{"prompt": "a", "stop": ["\\udfff"]}',
        b'{"prompt": "a", "\\ud83d": 1}',
        b'{"prompt": "a", "response_format": {"type": "grammar", "grammar": '
        b'{"syntax": "regex", "definition": "\\ud800"}}}',
        b'{"prompt": "a", "response_format": {"type": "json_schema", "json_schema": {"schema": '
        b'{"enum": ["\\ud800"]}}}}',
        b'{"prompt": "\xed\xa0\x80"}',
        b'{"prompt": "\xff"}',
        '{"prompt": "a"}'.encode("utf-16"),
        b'{"prompt": "a", "temperature": NaN}',
        b'{"prompt": "a", "temperature": 1e999}',
        b'{"prompt": "a", "top_p": -Infinity}',
        b'{"prompt": "a", "seed": ' + b"9" * 5000 + b"}",
        b'{"prompt": [1' + b"0" * 4000 + b"]}",
        b"[" * DEEP,
        b'{"prompt": "a", "x": ' + b"[" * 500 + b"]" * 500 + b"}",
        b'{"prompt": "a", "x": [' + b"[]," * 100_000 + b"[]]}",
        b'{"prompt": "a", "response_format": {"type": "json_schema", "json_schema": {"schema": '
        + b'{"items":' * 200
        + b"{}"
        + b"}" * 204,
    ],
    ids=lambda body: body[:40].decode("latin-1"),
)
def test_bodies_that_are_no_json_or_too_much_of_it(address: str, body: bytes) -> None:
    answer = post(address, body)
    assert (answer.status_code, code_of(answer)) == (400, "run.input")
    check_served(address)


@pytest.mark.parametrize("value", [2**70, -(2**70), True, "1", 0.5, [1], {"a": 1}])
@pytest.mark.parametrize(
    "field", ["seed", "top_k", "max_tokens", "max_completion_tokens", "priority", "n", "logprobs"]
)
def test_fields_of_other_types_or_sizes(address: str, field: str, value: Any) -> None:
    answer = post(address, {**ASKED, field: value})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)


@pytest.mark.parametrize("value", [2**70, -(2**70), True, "1", [1], {"a": 1}])
@pytest.mark.parametrize(
    "field", ["min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"]
)
def test_numbers_of_other_types_or_sizes(address: str, field: str, value: Any) -> None:
    answer = post(address, {**ASKED, field: value})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)


@pytest.mark.parametrize("token", [64, 258, -1, -300, 2**31, 2**63, 2**70])
def test_one_bad_token_ends_no_other_answer(address: str, token: int) -> None:
    """Before, it ended 15 of 40 answers."""
    prompts = [letters * 2 for letters in "abcdefghij" * 4]
    with ThreadPoolExecutor(16) as pool:
        honest = [
            pool.submit(post, address, {"prompt": prompt, "max_tokens": 8, "temperature": 0})
            for prompt in prompts
        ]
        bad = [pool.submit(post, address, {"prompt": [3, token]}) for _ in range(3)]
        for prompt, answer in zip(prompts, honest, strict=True):
            assert answer.result().json()["choices"][0]["text"] == answer_to(prompt, 8)
        assert [answer.result().status_code for answer in bad] == [400] * 3


def test_a_grammar_that_ends_a_process(address: str) -> None:
    for syntax, definition in (("lark", CHAINED), ("regex", "a?" * 117_000)):
        grammar = {"syntax": syntax, "definition": definition}
        asked = {"prompt": "a", "response_format": {"type": "grammar", "grammar": grammar}}
        answer = post(address, asked)
        assert (answer.status_code, code_of(answer)) == (400, "run.grammar")
        check_served(address)


def test_large_prompts_are_refused_by_their_bytes(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, six of 7.8 MB were tokenized: 25 s without an answer to others, and 2.6 GiB."""
    encoded: list[int] = []
    encode = Text.encode

    def noting(self: Text, text: str, **how: Any) -> list[int]:
        encoded.append(len(text))
        return encode(self, text, **how)

    monkeypatch.setattr(Text, "encode", noting)
    with ThreadPoolExecutor(8) as pool:
        large = [
            pool.submit(post, address, {"prompt": "hello there " * (size // 12)})
            for size in (7_800_000, 2_000_000, 900_000, 100_000, 2_000)
        ]
        talk = {"messages": [{"role": "user", "content": "a" * 900_000}]}
        body = json.dumps(talk).encode()
        headers = {"Content-Type": "application/json"}
        chat = plain_http.post(
            f"{address}/v1/chat/completions", content=body, headers=headers, timeout=120
        )
        check_served(address)
        answers = [answer.result() for answer in large]
    assert [answer.status_code for answer in answers] == [413, 413, 400, 400, 400]
    assert [code_of(answer) for answer in (*answers[2:], chat)] == ["context_length_exceeded"] * 4
    assert encoded == [3]


def test_a_body_without_a_length_is_refused_as_it_comes(address: str) -> None:
    url = httpx.URL(address)
    fields = b"Host: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked"
    with socket.create_connection((url.host, url.port), timeout=60) as client:
        client.sendall(b"POST /v1/completions HTTP/1.1\r\n" + fields + b"\r\n\r\n")
        chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        for _ in range(20):
            client.sendall(chunk)
        assert client.recv(100).startswith(b"HTTP/1.1 413 ")
    check_served(address)


def test_a_length_that_is_stated_twice(address: str) -> None:
    fields = "Host: localhost\r\nContent-Type: application/json\r\nContent-Length: 5"
    head = f"POST /v1/completions HTTP/1.1\r\n{fields}\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = talk_to(address, f"{head}0\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"http.ambiguous_length" in answer


def talk_to(address: str, sent: bytes) -> bytes:
    """All that a server sends until it closes."""
    url, received = httpx.URL(address), bytearray()
    with socket.create_connection((url.host, url.port), timeout=60) as client:
        client.sendall(sent)
        while chunk := client.recv(1 << 16):
            received += chunk
    return bytes(received)


@pytest.mark.parametrize("sent", [b"", b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"])
def test_a_request_that_does_not_arrive(engine: Engine, sent: bytes) -> None:
    with serving(create_app(engine, "tiny"), patience_s=0.5) as url:
        answer = talk_to(url, sent)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "http.request_timeout"


def test_connections_that_ask_nothing_keep_nobody_out(engine: Engine) -> None:
    with serving(create_app(engine, "tiny"), most=4, grace_s=0.2) as url, ExitStack() as stack:
        address = httpx.URL(url)
        for _ in range(8):
            stack.enter_context(socket.create_connection((address.host, address.port)))
        time.sleep(0.4)
        for _ in range(8):
            check_served(url)


@contextmanager
def serve_by_command(models: dict[str, Path], folder: Path) -> Iterator[str]:
    """`relaxd llm` in a process of 1,024 descriptors, on one thread."""
    port = folder / "port"
    command = [sys.executable, "-m", "relaxd", "llm", str(models["filled"])]
    command += ["--tokenizer", str(models["tokenizer"]), "--port", "0", "--port-file", str(port)]
    limit = ["sh", "-c", 'ulimit -n 1024; exec "$@"', "sh", *command, "--threads", "1"]
    process = subprocess.Popen(limit, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while not (port.exists() and port.read_text()):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port.read_text()}"
        assert process.poll() is None
    finally:
        process.terminate()
        process.wait(30)


def test_1100_silent_connections_at_1024_descriptors(
    language_models: dict[str, Path], tmp_path: Path
) -> None:
    with serve_by_command(language_models, tmp_path) as url, ExitStack() as stack:
        address = httpx.URL(url)
        for _ in range(1100):
            stack.enter_context(socket.create_connection((address.host, address.port), timeout=30))
        served = 0
        deadline = time.monotonic() + 60
        while served < 10:
            assert time.monotonic() < deadline
            try:
                answer = post(url, ASKED)
            except httpx.TransportError:
                continue
            served += answer.status_code == 200


def test_a_command_asks_for_a_key(
    language_models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELAXD_API_KEY", "s3cret")
    with serve_by_command(language_models, tmp_path) as url:
        assert post(url, ASKED).status_code == 401
        assert post(url, ASKED, Authorization="Bearer s3cret").status_code == 200


def test_all_bodies_have_a_limit(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relaxd.llm.door.ALL_BODIES", 100)
    with serving(create_app(engine, "tiny")) as url:
        answer = post(url, {**ASKED, "stop": ["x" * 100]})
        assert (answer.status_code, code_of(answer)) == (429, "run.overload")
        assert answer.headers["Retry-After"] == "1"
        for _ in range(3):
            check_served(url)


def test_slow_grammars_hold_up_no_others(
    engine: Engine, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, go = threading.Semaphore(0), threading.Event()

    def slow(sampling: Any) -> None:
        if sampling.grammar is not None:
            reached.release()
            assert go.wait(60)

    monkeypatch.setattr(engine, "_matcher", slow)
    asked = {**ASKED, "response_format": {"type": "json_object"}}
    with ThreadPoolExecutor(12) as pool:
        waiting = [pool.submit(post, address, asked) for _ in range(12)]
        for _ in range(4):
            assert reached.acquire(timeout=60)
        check_served(address)
        go.set()
        assert {answer.result().status_code for answer in waiting} == {200}


def test_an_error_that_nothing_foresees(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(create_app(engine, "tiny")) as url:
        with monkeypatch.context() as patched:
            patched.setattr(engine, "generate", lambda *_, **__: 1 / 0)
            answer = post(url, ASKED)
        assert (answer.status_code, answer.json()["error"]["type"]) == (500, "server_error")
        assert "division" not in answer.text
        check_served(url)
