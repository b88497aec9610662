"""Requests to one service: authentication, retries, problem documents raised as exceptions."""

import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import httpx

from relaxd.errors import ServerError, ServerUnreachable

IDEMPOTENT = frozenset({"GET", "HEAD", "PUT", "DELETE"})
BUSY = frozenset({429, 502, 503, 504})
ATTEMPTS = 4
FIRST_PAUSE = 0.2
LONGEST_PAUSE = 30.0
HOME = "relaxd"
"""The namespace of whoever signs in to no service, or to one without tenants."""


# Reading the certificates of all authorities takes 28 ms; over plain HTTP none is asked for.
_NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@cache
def _certificates() -> ssl.SSLContext:
    return httpx.create_ssl_context()


class Transport:
    """A service at `url`; `timeout` is in seconds, for connecting and between two chunks of an
    answer.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: float = 30.0,
        auth: httpx.Auth | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._signs_in = bool(token)
        self._namespace: str | None = None
        self.timeout = timeout
        headers = {"User-Agent": "relaxd"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        try:
            self._http = httpx.Client(
                base_url=self.url,
                headers=headers,
                timeout=timeout,
                auth=auth,
                follow_redirects=auth is not None,
                verify=_certificates() if url.startswith("https") or auth else _NO_CERTIFICATES,
            )
            if self._http.base_url.scheme not in ("http", "https"):
                raise httpx.InvalidURL("not http")
        except httpx.InvalidURL as error:
            raise ServerUnreachable(
                f"{url!r} is not the URL of a server", hint="as in http://127.0.0.1:8484"
            ) from error

    @classmethod
    def of_registry(cls, url: str, timeout: float) -> "Transport":
        """A registry of somebody's, with the credentials that docker's configuration has for it."""
        from relaxd.client.credentials import RegistryAuth

        return cls(url, timeout=timeout, auth=RegistryAuth(httpx.URL(url).netloc.decode()))

    def repository(self, name: str) -> str:
        """The repository of that name in the namespace of one's tenant, which the service is asked
        for once.
        """
        if self._namespace is None:
            self._namespace = self._ask_for_namespace() if self._signs_in else HOME
        return f"{self._namespace}/{name}"

    def _ask_for_namespace(self) -> str:
        answer = self.request("GET", "/v1/whoami", accept=frozenset({404}))
        # Releases that know no tenants answer with 404.
        return str(answer.json()["namespace"]) if answer.is_success else HOME

    def close(self) -> None:
        """Drop the connections."""
        self._http.close()

    def request(
        self, method: str, path: str, *, accept: frozenset[int] = frozenset(), **options: Any
    ) -> httpx.Response:
        """The answer, if its status is a success or in `accept`.

        Lost connections and busy servers are retried where repeating is safe: idempotent methods,
        and a POST that carries an Idempotency-Key; after the pause that the server asks for, if it
        is the longer one. Raises ServerError for a problem,
        ServerUnreachable when nothing answers.
        """
        repeatable = method in IDEMPOTENT or "Idempotency-Key" in (options.get("headers") or {})
        for attempt in range(ATTEMPTS):
            last = attempt == ATTEMPTS - 1
            pause = FIRST_PAUSE * 2**attempt
            try:
                response = self._http.request(method, path, **options)
            except httpx.TransportError as error:
                if last or not (repeatable or isinstance(error, httpx.ConnectError)):
                    raise self._unreachable(error) from error
            else:
                if last or not repeatable or response.status_code not in BUSY:
                    return _checked(response, accept)
                pause = max(pause, asked_pause(response.headers))
            time.sleep(pause)
        raise AssertionError("unreachable")

    def json(self, method: str, path: str, **options: Any) -> Any:
        """The answer's JSON document."""
        response = self.request(method, path, **options)
        try:
            return response.json()
        except ValueError as error:
            raise ServerUnreachable(
                f"{self.url} does not answer like a relaxd service", hint="check the server's URL"
            ) from error

    @contextmanager
    def stream(self, method: str, path: str, **options: Any) -> Iterator[httpx.Response]:
        """An answer whose body is read as it comes; no retries; httpx.TransportError once the body
        has begun to flow.
        """
        with self._http.stream(method, path, **options) as response:
            if not response.is_success:
                response.read()
            yield _checked(response, frozenset())

    def _unreachable(self, error: httpx.TransportError) -> ServerUnreachable:
        why = str(error) or type(error).__name__
        return ServerUnreachable(
            f"no answer from {self.url}: {why}",
            hint="start one with `relaxd serve`, or check the URL",
        )

    def translate(self, error: httpx.TransportError) -> ServerUnreachable:
        """The typed error for a connection lost while streaming."""
        return self._unreachable(error)


def asked_pause(headers: Mapping[str, str]) -> float:
    """The seconds that a Retry-After header asks for, LONGEST_PAUSE at most; 0 without one."""
    asked = headers.get("Retry-After", "")
    return min(float(asked), LONGEST_PAUSE) if asked.isascii() and asked.isdigit() else 0.0


def _checked(response: httpx.Response, accept: frozenset[int]) -> httpx.Response:
    if response.is_success or response.status_code in accept:
        return response
    problem = _problem(response)
    message = (
        problem.get("detail")
        or problem.get("title")
        or f"the server answered {response.status_code} {response.reason_phrase}"
    )
    raise ServerError(message, status=response.status_code, problem=problem)


def _problem(response: httpx.Response) -> dict[str, Any]:
    try:
        document = response.json()
    except ValueError:
        return {}
    if not isinstance(document, dict):
        return {}
    match document.get("errors"):
        case [{"code": code, "message": message}, *_] if "type" not in document:
            return {"code": code, "detail": message}
    return document
