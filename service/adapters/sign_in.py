"""Signing people in at an issuer: where its page is, and what a code of it is worth.

The authorization code flow of OpenID Connect Core 1.0 (section 3.1) with PKCE (RFC 7636). The web
page keeps state, nonce and verifier, so that this part remembers nothing of a person.
"""

import threading
import time
from collections.abc import Callable, Sequence
from urllib.parse import quote

import structlog

from service.adapters.issuer_documents import IssuerDocuments, Unusable, require_https
from service.adapters.oidc import Issuer
from service.errors import SignInRefused, SignInUnavailable, UnknownIssuer
from service.identity import Login

FRESH_S = 3600.0
"""How long what an issuer says of itself counts."""
PAUSE_S = 10.0
"""Between two requests to an issuer that was away."""
_ENDPOINTS = ("authorization_endpoint", "token_endpoint")

logger = structlog.get_logger("relaxd.oidc")


class SignIn:
    """Knows the entries that have a client id; safe to use from several threads."""

    def __init__(
        self,
        entries: Sequence[Issuer],
        documents: IssuerDocuments,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._entries: dict[tuple[str, str], list[Issuer]] = {}
        for entry in entries:
            if entry.client_id:
                self._entries.setdefault((entry.issuer, entry.client_id), []).append(entry)
        self._documents = documents
        self._clock = clock
        self._endpoints: dict[str, tuple[float, dict[str, str] | None]] = {}
        self._lock = threading.Lock()

    def logins(self) -> list[Login]:
        """All ways to sign in; the URL of one whose issuer is away is None."""
        return [
            Login(issuer, client_id, _scopes(entries), self._authorization_url(issuer))
            for (issuer, client_id), entries in self._entries.items()
        ]

    def exchange(
        self, issuer: str, client_id: str, *, code: str, verifier: str, redirect_uri: str
    ) -> str:
        """The ID token for a code, unchecked. Raises UnknownIssuer, SignInUnavailable, and
        SignInRefused where the issuer does not take the code.
        """
        entries = self._entries.get((issuer, client_id))
        if entries is None:
            raise UnknownIssuer(issuer)
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "client_id": client_id,
            "code_verifier": verifier,
        }
        try:
            url = self._endpoints_of(issuer)["token_endpoint"]
            answer = self._documents.post(url, form, _credentials(entries))
        except Unusable as error:
            logger.warning("an issuer gave no token", issuer=issuer, error=str(error))
            raise SignInUnavailable(issuer) from error
        token = answer.get("id_token")
        if isinstance(token, str) and token:
            return token
        reason = str(
            answer.get("error_description") or answer.get("error") or "it sent no ID token"
        )
        logger.warning("an issuer refused a code", issuer=issuer, error=reason[:300])
        raise SignInRefused(f"{issuer} refused the sign-in: {reason[:300]}", "sign in again")

    def _authorization_url(self, issuer: str) -> str | None:
        try:
            return self._endpoints_of(issuer)["authorization_endpoint"]
        except Unusable as error:
            logger.warning("nobody can sign in at an issuer", issuer=issuer, error=str(error))
            return None

    def _endpoints_of(self, issuer: str) -> dict[str, str]:
        with self._lock:
            until, endpoints = self._endpoints.get(issuer, (0.0, None))
        if self._clock() >= until:
            endpoints, lasts = None, PAUSE_S
            try:
                endpoints, lasts = self._discover(issuer), FRESH_S
            finally:
                with self._lock:
                    self._endpoints[issuer] = (self._clock() + lasts, endpoints)
        if endpoints is None:
            raise Unusable("it was away a moment ago")
        return endpoints

    def _discover(self, issuer: str) -> dict[str, str]:
        document = self._documents.discover(issuer)
        endpoints = {name: str(document.get(name, "")) for name in _ENDPOINTS}
        for url in endpoints.values():
            require_https(url)
        return endpoints


def _scopes(entries: Sequence[Issuer]) -> tuple[str, ...]:
    """The scopes of all entries, once each; `openid` makes it OpenID Connect."""
    return tuple(dict.fromkeys(("openid", *(name for one in entries for name in one.login_scopes))))


def _credentials(entries: Sequence[Issuer]) -> tuple[str, str] | None:
    """The client's id and secret as Basic authentication has them (RFC 6749, section 2.3.1)."""
    secrets = (entry.client_secret for entry in entries if entry.client_secret is not None)
    secret = next(secrets, None)
    if secret is None:
        return None
    return quote(str(entries[0].client_id), ""), quote(secret.get_secret_value(), "")
