"""An issuer of tokens for tests: keys of its own, served on a free port."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

AUDIENCE = "https://relaxd.example"
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())


def public(key: Any, kid: str, **members: Any) -> dict[str, Any]:
    """The key as a JWKS lists it."""
    algorithm = (
        jwt.algorithms.RSAAlgorithm
        if isinstance(key, rsa.RSAPrivateKey)
        else jwt.algorithms.ECAlgorithm
    )
    return json.loads(algorithm.to_jwk(key.public_key())) | {"kid": kid, **members}


@dataclass
class Served:
    """An issuer at `url`; `documents` by path, `asked` for what."""

    url: str
    documents: dict[str, Any]
    asked: list[str]


@contextmanager
def serving() -> Iterator[Served]:
    asked: list[str] = []
    documents: dict[str, Any] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = json.dumps(documents.get(self.path, {})).encode()
            self.send_response(200 if self.path in documents else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        documents["/.well-known/openid-configuration"] = {
            "issuer": url,
            "jwks_uri": f"{url}/keys",
        }
        documents["/keys"] = {"keys": [public(RSA, "rsa"), public(EC, "ec")]}
        try:
            yield Served(url, documents, asked)
        finally:
            server.shutdown()
            thread.join()
