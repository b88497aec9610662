"""A guarded service with tenants, and a client for each token that a test wants."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from service.identity import DEFAULT, Scope
from service.usecases.tenants import tenants, tokens
from tests.service.live import Live, live
from tests.support import plain_http

OPERATOR = "the operator's"


@dataclass
class House:
    """A service with the tenants `a` and `b`; clients are closed with it."""

    live: Live
    stack: ExitStack

    def client(self, tenant: str, *scopes: Scope) -> httpx.Client:
        """A client with a token of the tenant, an admin's if no scope is named."""
        issued = tokens.create(self.core, tenant, "t", scopes or (Scope.ADMIN,))
        return self.with_token(issued.text)

    def with_token(self, text: str) -> httpx.Client:
        headers = {"Authorization": f"Bearer {text}"}
        return self.stack.enter_context(
            plain_http.Client(base_url=self.live.url, headers=headers, timeout=20)
        )

    @property
    def core(self) -> Any:
        return self.live.services.core


@contextmanager
def house(folder: Path, **settings: Any) -> Iterator[House]:
    with live(folder, token=OPERATOR, **settings) as running, ExitStack() as stack:
        for name in ("a", "b"):
            tenants.create(running.services.core, name)
        yield House(running, stack)


def compile_model(client: httpx.Client, model: bytes = b"a model", request: str = "{}") -> Any:
    """The ended job of a model that the client sends."""
    files: dict[str, Any] = {"model": ("m.onnx", model), "request": (None, request)}
    answer = client.post("/v1/compile", files=files, params={"wait": 20})
    assert answer.status_code == 200, answer.text
    return answer.json()


__all__ = ["DEFAULT", "House", "compile_model", "house"]
