"""Requests to the endpoint of a language model that no client should send, by kind."""

import json
import random
import socket
import string
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any

import httpx

TIMEOUT_S = 60.0
HOLD_S = 3.0
SILENT = 40
JSON_TYPE = "application/json"
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**70, -(2**70), 0.5, -0.5, 1e308, 5e-324, "", "a",
    "\x00", "\U0001f600", [], [1], [[1]], ["a"], {}, {"a": 1}, {"type": "text"},
)  # fmt: skip
FIELDS = (
    "prompt", "messages", "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k",
    "seed", "stop", "stream", "stream_options", "priority", "response_format", "n", "best_of",
    "logprobs", "tools", "logit_bias", "suffix", "echo", "model", "top_logprobs", "min_p",
    "presence_penalty", "frequency_penalty", "repetition_penalty", "stop_token_ids",
    "tool_choice", "parallel_tool_calls", "chat_template_kwargs",
)  # fmt: skip


class Hostile:
    """One attacker; each method sends one request of a kind and returns the status of its answer, 0
    where the connection was closed without one.
    """

    def __init__(self, url: str) -> None:
        parsed = httpx.URL(url)
        self._address = parsed.host, int(parsed.port or 80)

    def tokens(self, draw: random.Random) -> int:
        """Send a prompt with tokens that the model lacks."""
        prompt = draw.choices(range(60), k=draw.randint(0, 12))
        bad = draw.choice((64, 258, -1, -300, 2**31, 2**63, 2**70, draw.randint(64, 10**9)))
        prompt.insert(draw.randint(0, len(prompt)), bad)
        return self._post({"prompt": prompt, "stream": draw.random() < 0.5})

    def fields(self, draw: random.Random) -> int:
        """Send fields with values of other types and sizes."""
        asked: dict[str, Any] = {"prompt": "abc", "max_tokens": 4}
        for _ in range(draw.randint(1, 3)):
            asked[draw.choice(FIELDS)] = draw.choice(VALUES)
        return self._post(asked, chat=draw.random() < 0.3)

    def random_json(self, draw: random.Random) -> int:
        """Send a document of any shape."""
        return self._post(_document(draw, 4))

    def damage(self, draw: random.Random) -> int:
        """Send a request in which some bytes are others."""
        asked = {"prompt": "abc", "max_tokens": 4, "stop": ["zz"], "temperature": 0.5}
        body = bytearray(json.dumps(asked).encode())
        for _ in range(draw.randint(1, 6)):
            body[draw.randrange(len(body))] = draw.randrange(256)
        return self._post(bytes(body))

    def random_bytes(self, draw: random.Random) -> int:
        """Send bytes that are no HTTP."""
        return self._talk(draw.randbytes(draw.randint(1, 4000)), HOLD_S)

    def surrogates(self, draw: random.Random) -> int:
        """Send halves of surrogate pairs."""
        half = f"\\u{draw.randint(0xD800, 0xDFFF):04x}"
        body = draw.choice(
            (
                f'{{"prompt": "a{half}b"}}',
                f'{{"prompt": "a", "stop": ["{half}"]}}',
                f'{{"prompt": "a", "{half}": 1}}',
                f'{{"messages": [{{"role": "{half}", "content": "a"}}]}}',
            )
        )
        return self._post(body.encode(), chat=body.startswith('{"m'))

    def nesting(self, draw: random.Random) -> int:
        """Send a document that is nested deeply, or has many values."""
        depth = draw.choice((200, 900, 2000, 100_000))
        inner = draw.choice((b"[" * depth + b"]" * depth, b'{"a":' * depth + b"1" + b"}" * depth))
        many = b"[" + b"{}," * 200_000 + b"{}]"
        return self._post(b'{"prompt": "a", "x": ' + draw.choice((inner, many)) + b"}")

    def grammars(self, draw: random.Random) -> int:
        """Send a grammar that takes much, or is none."""
        syntax, definition = draw.choice(_GRAMMARS)(draw)
        form = {"type": "grammar", "grammar": {"syntax": syntax, "definition": definition}}
        return self._post({"prompt": "ab", "max_tokens": 8, "response_format": form})

    def schemas(self, draw: random.Random) -> int:
        """Send a schema that takes much, or is none."""
        definition = draw.choice(
            (
                {"type": "string", "pattern": "^(" + "a?" * 60_000 + ")$"},
                {"$ref": "#"},
                {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
                {
                    "type": "object",
                    "properties": {f"p{i}": {"type": "string"} for i in range(2000)},
                },
                {"anyOf": [{"const": i} for i in range(5000)]},
                {"type": "array", "minItems": 10**9},
                {"type": "string", "minLength": 10**6},
                _document(draw, 4),
            )
        )
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": definition}}
        return self._post({"prompt": "ab", "max_tokens": 8, "response_format": form})

    def large_prompts(self, draw: random.Random) -> int:
        """Send a prompt that does not fit by far."""
        size = draw.choice((2_000, 60_000, 500_000, 1_000_000, 7_800_000))
        if draw.random() < 0.3:
            return self._post({"prompt": [1] * (size // 2)})
        text = draw.choice(("hello there ", " ", "\u2603", "a")) * (size // 4)
        if draw.random() < 0.3:
            return self._post({"messages": [{"role": "user", "content": text}]}, chat=True)
        return self._post({"prompt": text})

    def messages(self, draw: random.Random) -> int:
        """Send many messages, or such as the template was not made for."""
        count = draw.choice((1, 40, 70, 20_000))
        content = draw.choice(
            ("", "a", [{"type": "text", "text": "x"}], {"a": 1}, None, "{{ 7*7 }}")
        )
        return self._post({"messages": [{"role": "user", "content": content}] * count}, chat=True)

    def pages(self, draw: random.Random) -> int:
        """Send what a web page makes a browser send."""
        headers: dict[str, str] = draw.choice(
            (
                {"Content-Type": "text/plain"},
                {"Content-Type": "application/x-www-form-urlencoded"},
                {"Origin": "https://evil.example"},
                {"Origin": "null"},
                {"Host": "evil.example", "Origin": "http://evil.example"},
                {"Host": "127.0.0.1.evil.example"},
            )
        )
        return self._post({"prompt": "a", "max_tokens": 2}, headers=headers)

    def heads(self, draw: random.Random) -> int:
        """Send a head that is too large, contradicts itself, or asks for what is not there."""
        post = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
        long = b"X-Long: " + b"a" * draw.choice((33_000, 100_000, 1_000_000))
        both = b"Content-Length: 5\r\nTransfer-Encoding: chunked"
        lines = draw.choice((long, both, b"Content-Length: -1", b"Content-Length: 1, 2", b"a b: c"))
        path = "/" + "".join(draw.choices(string.printable, k=20)).replace("\r", "")
        other = f"{draw.choice(('GET', 'PUT', 'BREW'))} {path} HTTP/1.1\r\nHost: localhost"
        head = draw.choice((post + lines, post + lines, other.encode()))
        return self._talk(head + b"\r\nConnection: close\r\n\r\n0\r\n\r\n", HOLD_S)

    def silence(self, draw: random.Random) -> int:
        """Open connections on which little or nothing is said."""
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n"
        opened = []
        try:
            for _ in range(SILENT):
                opened.append(socket.create_connection(self._address, TIMEOUT_S))
                opened[-1].sendall(draw.choice((b"", b"P", head, head + b"\r\n{")))
            time.sleep(HOLD_S)
        except OSError:
            pass
        for connection in opened:
            connection.close()
        return 0

    def leaving(self, draw: random.Random) -> int:
        """Ask for a long answer and reset the connection."""
        body = json.dumps({"prompt": "abc", "max_tokens": 50, "stream": draw.random() < 0.7})
        fields = f"Content-Type: {JSON_TYPE}\r\nContent-Length: {len(body)}"
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n\r\n"
        with socket.create_connection(self._address, TIMEOUT_S) as connection:
            sent = (head + body).encode()
            connection.sendall(sent[: draw.choice((len(sent), len(sent), len(head), 40))])
            time.sleep(draw.uniform(0, 0.1))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return 0

    def extremes(self, draw: random.Random) -> int:
        """Ask within all limits, at their ends."""
        asked: dict[str, Any] = {
            "prompt": "".join(draw.choices(string.ascii_lowercase, k=draw.choice((1, 20, 60)))),
            "temperature": draw.choice((0, 5e-324, 1e-300, 1e-9, 100)),
            "top_p": draw.choice((5e-324, 1e-300, 1.0)),
            "top_k": draw.choice((0, 1, 2**62)),
            "seed": draw.choice((0, 2**63 - 1)),
            "max_tokens": draw.choice((1, 50, 2**62)),
            "priority": draw.choice((0, 0, 2**62, -(2**62))),
            "stop": ["z" * 1000] * 16,
        }
        return self._post(asked)

    def _post(
        self, document: Any, *, chat: bool = False, headers: Mapping[str, str] | None = None
    ) -> int:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        path = "/v1/chat/completions" if chat else "/v1/completions"
        fields = {"Host": "localhost", "Content-Type": JSON_TYPE, **(headers or {})}
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        end = f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        return self._talk(f"POST {path} HTTP/1.1\r\n{lines}{end}".encode() + body)

    def _talk(self, sent: bytes, patience_s: float = TIMEOUT_S) -> int:
        """Send bytes, read to the end, and return the status."""
        received = bytearray()
        try:
            with socket.create_connection(self._address, TIMEOUT_S) as connection:
                connection.sendall(sent)
                connection.settimeout(patience_s)
                while chunk := connection.recv(1 << 16):
                    received += chunk
        except OSError:
            # A body that is refused may not be read to its end.
            pass
        words = bytes(received[:20]).split()
        return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0


def _document(draw: random.Random, depth: int) -> Any:
    match draw.randint(0, 3 if depth else 1):
        case 0 | 1:
            return draw.choice(VALUES)
        case 2:
            return [_document(draw, depth - 1) for _ in range(draw.randint(0, 4))]
    names = draw.sample([*FIELDS, "type", "schema", "a"], k=4)
    return {name: _document(draw, depth - 1) for name in names}


def _chained(draw: random.Random) -> tuple[str, str]:
    count = draw.choice((10, 1000, 4000))
    rules = "".join(f"r{i}: r{i + 1}\n" for i in range(count))
    return "lark", f'start: r0\n{rules}r{count}: "a"'


def _ambiguous(draw: random.Random) -> tuple[str, str]:
    count = draw.choice((2, 20, 200))
    alternatives = " | ".join(f"start start {'start ' * (i % 3)}" for i in range(count))
    return "lark", f'start: {alternatives} | "a" | ""'


def _optional(draw: random.Random) -> tuple[str, str]:
    return "regex", draw.choice(("a?", r"\w?", "(a|b)?")) * draw.choice((10, 2000, 40_000))


def _counted(draw: random.Random) -> tuple[str, str]:
    low = draw.choice((1, 100, 10_000))
    return "regex", f"((a|b){{{low},{low * 10}}}c){{{draw.choice((1, 50, 1000))}}}"


def _any_text(draw: random.Random) -> tuple[str, str]:
    text = "".join(draw.choices('ab|()[]{}*+?.\\^$-:"/~%<>0123456789 \n', k=draw.randint(1, 200)))
    return draw.choice(("regex", "lark")), text


_GRAMMARS = (_chained, _ambiguous, _optional, _counted, _any_text)

KINDS: dict[str, Callable[[Hostile, random.Random], int]] = {
    method.__name__: method
    for method in (
        Hostile.tokens,
        Hostile.fields,
        Hostile.random_json,
        Hostile.damage,
        Hostile.random_bytes,
        Hostile.surrogates,
        Hostile.nesting,
        Hostile.grammars,
        Hostile.schemas,
        Hostile.large_prompts,
        Hostile.messages,
        Hostile.pages,
        Hostile.heads,
        Hostile.silence,
        Hostile.leaving,
        Hostile.extremes,
    )
}

REFUSED: dict[str, tuple[int, ...]] = {
    "tokens": (400,),
    "surrogates": (400,),
    "nesting": (400,),
    "large_prompts": (400, 413, 429, 0),
    "pages": (403, 415, 421),
    "random_bytes": (400, 0),
}
"""The statuses of kinds that no server may answer. A large body may not be read to its end."""
