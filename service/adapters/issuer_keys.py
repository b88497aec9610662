"""Public keys of token issuers: fetched, kept for an hour, and for a day if the issuer is away."""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx
import jwt
import structlog

from service.adapters.oidc import Issuer

FRESH_S = 3600.0
STALE_S = 24 * 3600.0
"""Keys older than that open nothing, though their issuer be away."""
PAUSE_S = 30.0
"""Between two requests to an issuer: tokens with made-up key ids cause no more."""
TIMEOUT_S = 5.0
LARGEST = 1 << 20
MOST_KEYS = 100
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})

logger = structlog.get_logger("relaxd.oidc")


class _Unusable(Exception):
    """The issuer's answer is not what it should be."""


@dataclass
class _Ring:
    """The keys of one place, by id; times are of the clock."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    keys: dict[str, Any] = field(default_factory=dict)
    fetched_at: float | None = None
    asked_at: float | None = None


class IssuerKeys:
    """Keys of all issuers; safe to use from several threads."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, http: httpx.Client | None = None
    ) -> None:
        self._clock = clock
        self._http = http or httpx.Client(timeout=TIMEOUT_S, follow_redirects=False)
        self._rings: dict[str, _Ring] = {}
        self._lock = threading.Lock()

    def key(self, issuer: Issuer, kid: str) -> Any | None:
        """The issuer's key of that id; None where it has none, or has been away for too long."""
        with self._lock:
            ring = self._rings.setdefault(issuer.jwks_url or issuer.issuer, _Ring())
        with ring.lock:
            age = None if ring.fetched_at is None else self._clock() - ring.fetched_at
            if age is None or age > FRESH_S or kid not in ring.keys:
                self._refresh(ring, issuer)
            if ring.fetched_at is None or self._clock() - ring.fetched_at > STALE_S:
                return None
            return ring.keys.get(kid)

    def _refresh(self, ring: _Ring, issuer: Issuer) -> None:
        if ring.asked_at is not None and self._clock() - ring.asked_at < PAUSE_S:
            return
        ring.asked_at = self._clock()
        try:
            keys = _keys(self._document(issuer.jwks_url or self._discover(issuer)))
        except (httpx.HTTPError, httpx.InvalidURL, _Unusable) as error:
            logger.warning(
                "the keys of an issuer were not fetched",
                issuer=issuer.issuer,
                error=str(error) or type(error).__name__,
            )
            return
        ring.keys, ring.fetched_at = keys, ring.asked_at

    def _discover(self, issuer: Issuer) -> str:
        url = issuer.issuer.rstrip("/") + "/.well-known/openid-configuration"
        document = self._document(url)
        if document.get("issuer") != issuer.issuer:
            raise _Unusable(f"{url} is another issuer's: {str(document.get('issuer'))[:200]}")
        return str(document.get("jwks_uri", ""))

    def _document(self, url: str) -> dict[str, Any]:
        parts = urlsplit(url)
        if parts.scheme != "https" and parts.hostname not in LOOPBACK:
            raise _Unusable(f"{url[:200]!r} is not https")
        content = bytearray()
        with self._http.stream("GET", url, headers={"Accept": "application/json"}) as answer:
            if answer.status_code != httpx.codes.OK:
                raise _Unusable(f"{url} answers {answer.status_code}")
            for chunk in answer.iter_bytes():
                content += chunk
                if len(content) > LARGEST:
                    raise _Unusable(f"{url} is larger than {LARGEST} bytes")
        try:
            document = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise _Unusable(f"{url} is not JSON") from error
        if not isinstance(document, dict):
            raise _Unusable(f"{url} did not answer with a JSON object")
        return document


def _keys(document: dict[str, Any]) -> dict[str, Any]:
    """The keys that check signatures, by id; those of unknown kinds, and secret ones, are left
    out.
    """
    listed = document.get("keys")
    if not isinstance(listed, list) or len(listed) > MOST_KEYS:
        raise _Unusable(f"an issuer's keys must be a list of at most {MOST_KEYS}")
    keys: dict[str, Any] = {}
    for entry in listed:
        if not isinstance(entry, dict) or not isinstance(entry.get("kid"), str):
            continue
        if entry.get("kty") not in ("RSA", "EC", "OKP") or entry.get("use", "sig") != "sig":
            continue
        try:
            keys[entry["kid"]] = jwt.PyJWK.from_dict(entry)
        except (jwt.PyJWTError, ValueError, TypeError):  # of a kind that PyJWT does not know
            continue
    return keys
