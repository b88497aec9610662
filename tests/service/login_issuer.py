"""An OpenID Connect issuer for tests of the web page: it signs in one person, and checks PKCE."""

import base64
import hashlib
import html
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import jwt

from tests.service.issuer import RSA, public

CLIENT = "relaxd-page"


@dataclass
class LoginIssuer:
    """`claims` are those of its person, `changes` replace some of a token (None: left out);
    `refuses`: the error of its page; `answer`: changes of the query that it sends back.
    """

    url: str = ""
    claims: dict[str, Any] = field(
        default_factory=lambda: {"sub": "ada", "email": "ada@acme.example"}
    )
    changes: dict[str, Any] = field(default_factory=dict)
    refuses: str | None = None
    answer: dict[str, str] = field(default_factory=dict)
    lifetime_s: float = 3600.0
    secret: str | None = None
    asked: list[dict[str, str]] = field(default_factory=list)
    traded: list[dict[str, str]] = field(default_factory=list)
    _codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def discovery(self) -> dict[str, str]:
        return {
            "issuer": self.url,
            "jwks_uri": f"{self.url}/keys",
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
        }

    def authorize(self, query: dict[str, str]) -> str:
        """The address to which the browser goes back."""
        self.asked.append(query)
        answer = {"state": query["state"], "iss": self.url}
        if self.refuses:
            answer["error"] = self.refuses
        else:
            answer["code"] = secrets.token_urlsafe(8)
            self._codes[answer["code"]] = query
        return f"{query['redirect_uri']}?{urlencode(answer | self.answer)}"

    def trade(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        """The answer to a code, which is good once, for whoever began."""
        self.traded.append(form)
        query = self._codes.pop(form["code"], None)
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        basic = base64.b64encode(f"{CLIENT}:{quote(self.secret or '', '')}".encode()).decode()
        if (
            query is None
            or form["grant_type"] != "authorization_code"
            or (query["code_challenge"], query["code_challenge_method"]) != (challenge, "S256")
            or (query["redirect_uri"], query["client_id"])
            != (form["redirect_uri"], form["client_id"])
            or (self.secret and authorization != f"Basic {basic}")
        ):
            return 400, {"error": "invalid_grant"}
        now = time.time()
        claims = {
            "iss": self.url,
            "aud": CLIENT,
            "iat": now - 1,
            "exp": now + self.lifetime_s,
            "nonce": query["nonce"],
            **self.claims,
            **self.changes,
        }
        present = {name: value for name, value in claims.items() if value is not None}
        token = jwt.encode(present, RSA, algorithm="RS256", headers={"kid": "rsa"})
        return 200, {"id_token": token, "access_token": "x", "token_type": "Bearer"}


@contextmanager
def serve_login() -> Iterator[LoginIssuer]:
    """An issuer on a free port of this machine. Its page asks who is there where the request wants
    that (`prompt=login`), and else sends the browser back at once.
    """
    issuer = LoginIssuer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            documents = {
                "/.well-known/openid-configuration": issuer.discovery(),
                "/keys": {"keys": [public(RSA, "rsa")]},
            }
            if parts.path in documents:
                return self._send(200, json.dumps(documents[parts.path]), "application/json")
            if parts.path != "/authorize":
                return self._send(404, "")
            query = dict(parse_qsl(parts.query))
            address = issuer.authorize(query)
            if query.get("prompt") != "login":
                return self._send(302, "", location=address)
            return self._send(200, f'<h1>Login</h1><a href="{html.escape(address)}">I am Ada</a>')

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"])).decode()
            form = dict(parse_qsl(content))
            status, document = issuer.trade(form, self.headers.get("Authorization", ""))
            self._send(status, json.dumps(document), "application/json")

        def _send(
            self, status: int, text: str, kind: str = "text/html", location: str = ""
        ) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(text.encode())))
            if location:
                self.send_header("Location", location)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        issuer.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield issuer
        finally:
            server.shutdown()
            thread.join()
