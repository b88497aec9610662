"""A stand-in for the APIs of GitHub and GitLab: comments of one pull request, and a record of what
was asked of it.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

BOT = {"id": 41, "type": "Bot"}


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    token: str
    body: Any


@dataclass
class StandIn:
    """`comments` by id; user: whom `/user` names, None for a token that may not ask; refuses: the
    status of every write, None to take them.
    """

    url: str = ""
    author: dict[str, Any] = field(default_factory=lambda: BOT)
    user: dict[str, Any] | None = None
    refuses: int | None = None
    comments: list[dict[str, Any]] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)

    def add(self, body: str, author: dict[str, Any]) -> dict[str, Any]:
        """A comment of somebody."""
        number = len(self.comments) + 1
        comment = {"id": number, "body": body, "user": author, "author": author}
        self.comments.append({**comment, "html_url": f"https://forge.example/comment/{number}"})
        return self.comments[-1]

    def answer(self, asked: Asked, query: dict[str, list[str]]) -> tuple[int, Any]:
        """The status and document for a request."""
        if asked.path.endswith("/user"):
            return (200, self.user) if self.user else (403, {"message": "not accessible"})
        if asked.method == "GET":
            count, page = int(query["per_page"][0]), int(query["page"][0])
            return 200, self.comments[(page - 1) * count : page * count]
        if self.refuses:
            return self.refuses, {"message": "Resource not accessible by integration"}
        if asked.method == "POST":
            return 201, self.add(asked.body["body"], self.author)
        comment = self.comments[int(asked.path.rpartition("/")[2]) - 1]
        comment["body"] = asked.body["body"]
        return 200, comment

    @property
    def written(self) -> list[Asked]:
        """The requests that change something."""
        return [asked for asked in self.asked if asked.method != "GET"]


@contextmanager
def serve_stand_in(**options: Any) -> Iterator[StandIn]:
    """A stand-in that listens on this machine."""
    forge = StandIn(**options)

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            """Nothing is printed."""

        def _respond(self) -> None:
            parts = urlsplit(self.path)
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            token = self.headers.get("Authorization", "")
            body = json.loads(content) if content else None
            asked = Asked(self.command, parts.path, token, body)
            forge.asked.append(asked)
            status, document = forge.answer(asked, parse_qs(parts.query))
            answer = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    for method in ("GET", "POST", "PATCH", "PUT"):
        setattr(Handler, f"do_{method}", Handler._respond)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    forge.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield forge
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
