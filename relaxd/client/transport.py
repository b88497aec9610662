"""Requests to one service: authentication, retries, problem documents raised as exceptions."""

import re
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import httpx

from relaxd.errors import ServerError, ServerUnreachable

if TYPE_CHECKING:
    from relaxd.client.credentials import RegistryAuth

IDEMPOTENT = frozenset({"GET", "HEAD", "PUT", "DELETE"})
BUSY = frozenset({429, 502, 503, 504})
ATTEMPTS = 4
FIRST_PAUSE = 0.2
LONGEST_PAUSE = 30.0
LARGEST = 64 << 20
"""Of a document, in bytes."""
LARGEST_MODEL = 64 << 30
MOST_REDIRECTS = 5
HOME = "relaxd"
_ERRNO = re.compile(r"\[Errno -?[0-9]+\] ")
"""The namespace of whoever signs in to no service, or to one without tenants."""


# Reading the certificates of all authorities takes 28 ms; over plain HTTP none is asked for.
_NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@cache
def _certificates() -> ssl.SSLContext:
    return httpx.create_ssl_context()


def _is_blob(url: httpx.URL) -> bool:
    """True for a blob of a registry, whose content its digest proves, wherever it comes from."""
    return url.path.startswith("/v2/") and url.path.rpartition("/")[0].endswith("/blobs")


class Transport:
    """A service at `url`; `timeout` is in seconds, for connecting and between two chunks of an
    answer.

    The token, and the credentials of `auth`, are sent to that scheme, host and port only, whatever
    an answer names. Redirects of a registry, which has `auth`, are followed for GET and HEAD, those
    of a service for blobs alone; MOST_REDIRECTS at a time, and never from https to http.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: float = 30.0,
        auth: "RegistryAuth | None" = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._auth = auth
        self._signs_in = bool(token)
        self._namespace: str | None = None
        self.timeout = timeout
        self._is_plain = not (url.startswith("https") or auth)
        headers = {"User-Agent": "relaxd"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        try:
            self._http = httpx.Client(
                base_url=self.url,
                headers=headers,
                timeout=timeout,
                verify=_NO_CERTIFICATES if self._is_plain else _certificates(),
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
        if "_secure" in vars(self):
            self._secure.close()

    def request(
        self,
        method: str,
        path: str,
        *,
        accept: frozenset[int] = frozenset(),
        limit: int = LARGEST,
        **options: Any,
    ) -> httpx.Response:
        """The answer, if its status is a success or in `accept`; of `limit` bytes at the most.

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
                response = self._read(self._open(method, path, **options), limit)
            except httpx.RequestError as error:
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
        response = self._open(method, path, **options)
        try:
            yield response if response.is_success else _checked(self._read(response), frozenset())
        finally:
            response.close()

    def _open(self, method: str, path: str, **options: Any) -> httpx.Response:
        """The answer, of which the body is still to be read, after redirects."""
        try:
            request = self._http.build_request(method, path, **options)
        except httpx.InvalidURL as error:
            raise self._odd(f"it names the URL {path[:200]!r}") from error
        follows = self._auth is not None or _is_blob(request.url)
        for _ in range(MOST_REDIRECTS + 1):
            response = self._send_bound(request)
            following = response.next_request
            if not follows or following is None or method not in ("GET", "HEAD"):
                return response
            response.close()
            if following.url.scheme not in ("https", request.url.scheme):
                raise self._odd(f"it redirects from {request.url.scheme} to {following.url.scheme}")
            request = following
        raise self._odd(f"it redirects more than {MOST_REDIRECTS} times")

    def _send_bound(self, request: httpx.Request) -> httpx.Response:
        """The answer to one request, signed in where it goes to this service or registry."""
        if _origin(request.url) != _origin(httpx.URL(self.url)):
            request.headers.pop("Authorization", None)
            return self._send(request)
        if self._auth is None:
            return self._send(request)
        if self._auth.header:
            request.headers["Authorization"] = self._auth.header
        response = self._send(request)
        if response.status_code != httpx.codes.UNAUTHORIZED:
            return response
        if not self._auth.answer(response, self._ask_realm):
            return response
        response.close()
        request.headers["Authorization"] = str(self._auth.header)
        return self._send(request)

    def _send(self, request: httpx.Request) -> httpx.Response:
        leaves = self._is_plain and request.url.scheme == "https"
        http = self._secure if leaves else self._http
        return http.send(request, stream=True, auth=None, follow_redirects=False)

    @cached_property
    def _secure(self) -> httpx.Client:
        """The client for https where the service itself speaks plain HTTP."""
        return httpx.Client(timeout=self.timeout, verify=_certificates())

    def _ask_realm(self, request: httpx.Request) -> bytes:
        answer = self._read(self._send(request))
        return answer.content if answer.is_success else b""

    def _read(self, response: httpx.Response, limit: int = LARGEST) -> httpx.Response:
        """The answer with its body; raises ServerUnreachable for one that is larger."""
        content = bytearray()
        try:
            for chunk in response.iter_bytes():
                content += chunk
                if len(content) > limit:
                    raise self._odd(f"its answer has more than {limit} bytes")
        finally:
            response.close()
        headers = [
            (name, value)
            for name, value in response.headers.multi_items()
            if name not in ("content-encoding", "content-length", "transfer-encoding")
        ]
        status, request = response.status_code, response.request
        return httpx.Response(status, headers=headers, content=bytes(content), request=request)

    def _odd(self, what: str) -> ServerUnreachable:
        return ServerUnreachable(
            f"{self.url} does not answer like a relaxd service or a registry: {what}",
            hint="check the URL: another program answers there",
        )

    def _unreachable(self, error: httpx.RequestError) -> ServerUnreachable:
        why = _ERRNO.sub("", str(error)) or type(error).__name__
        return ServerUnreachable(
            f"no answer from {self.url}: {why}",
            hint="start one with `relaxd serve`, or check the URL",
        )

    def translate(self, error: httpx.RequestError) -> ServerUnreachable:
        """The typed error for a connection lost while streaming."""
        return self._unreachable(error)


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    ports = {"http": 80, "https": 443}
    return url.scheme, url.host, url.port or ports.get(url.scheme)


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
