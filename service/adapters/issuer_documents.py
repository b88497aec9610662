"""JSON documents of token issuers, over HTTPS: discovery, keys, answers to codes."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx

TIMEOUT_S = 5.0
LARGEST = 1 << 20
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_JSON = {"Accept": "application/json"}


class Unusable(Exception):
    """The issuer is away, or its answer is not what it should be."""


class IssuerDocuments:
    """Fetches documents; safe to use from several threads. Redirects are not followed, and plain
    HTTP is taken from this machine alone. Every method raises Unusable.
    """

    def __init__(self, http: httpx.Client | None = None) -> None:
        self._http = http or httpx.Client(timeout=TIMEOUT_S, follow_redirects=False)

    def discover(self, issuer: str) -> dict[str, Any]:
        """Fetch the metadata of the issuer (OpenID Connect Discovery 1.0)."""
        url = issuer.rstrip("/") + "/.well-known/openid-configuration"
        document = self.get(url)
        if document.get("issuer") != issuer:
            raise Unusable(f"{url} is another issuer's: {str(document.get('issuer'))[:200]}")
        return document

    def get(self, url: str) -> dict[str, Any]:
        """The document at the URL."""
        status, document = self._send("GET", url)
        if status != httpx.codes.OK:
            raise Unusable(f"{url} answers {status}")
        return document

    def post(
        self, url: str, form: Mapping[str, str], auth: tuple[str, str] | None = None
    ) -> dict[str, Any]:
        """The document that answers the form, that of a refusal (400, 401) included."""
        status, document = self._send("POST", url, data=form, auth=auth)
        if status not in (httpx.codes.OK, httpx.codes.BAD_REQUEST, httpx.codes.UNAUTHORIZED):
            raise Unusable(f"{url} answers {status}")
        return document

    def _send(self, method: str, url: str, **options: Any) -> tuple[int, dict[str, Any]]:
        require_https(url)
        content = bytearray()
        try:
            with self._http.stream(method, url, headers=_JSON, **options) as answer:
                for chunk in answer.iter_bytes():
                    content += chunk
                    if len(content) > LARGEST:
                        raise Unusable(f"{url} is larger than {LARGEST} bytes")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unusable(str(error) or type(error).__name__) from error
        return answer.status_code, _read(url, answer.status_code, content)


def require_https(url: str) -> None:
    """Raise Unusable for a URL that is neither HTTPS nor of this machine."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise Unusable(f"{url[:200]!r} is not a URL") from error
    is_local = parts.scheme == "http" and parts.hostname in LOOPBACK
    if parts.scheme != "https" and not is_local:
        raise Unusable(f"{url[:200]!r} is not https")


def _read(url: str, status: int, content: bytes | bytearray) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Unusable(f"{url} answers {status}, and not with JSON") from error
    if not isinstance(document, dict):
        raise Unusable(f"{url} did not answer with a JSON object")
    return document
