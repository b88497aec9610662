"""Public keys of token issuers: fetched, kept for an hour, and for a day if the issuer is away."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jwt
import structlog

from service.adapters.issuer_documents import IssuerDocuments, Unusable
from service.adapters.oidc import Issuer

FRESH_S = 3600.0
STALE_S = 24 * 3600.0
"""Keys older than that open nothing, though their issuer be away."""
PAUSE_S = 30.0
"""Between two requests to an issuer: tokens with made-up key ids cause no more."""
MOST_KEYS = 100

logger = structlog.get_logger("relaxd.oidc")


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
        self, documents: IssuerDocuments, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._documents = documents
        self._clock = clock
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
            url = issuer.jwks_url or self._documents.discover(issuer.issuer).get("jwks_uri", "")
            keys = _keys(self._documents.get(str(url)))
        except Unusable as error:
            logger.warning(
                "the keys of an issuer were not fetched", issuer=issuer.issuer, error=str(error)
            )
            return
        ring.keys, ring.fetched_at = keys, ring.asked_at


def _keys(document: dict[str, Any]) -> dict[str, Any]:
    """The keys that check signatures, by id; those of unknown kinds, and secret ones, are left
    out.
    """
    listed = document.get("keys")
    if not isinstance(listed, list) or len(listed) > MOST_KEYS:
        raise Unusable(f"an issuer's keys must be a list of at most {MOST_KEYS}")
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
