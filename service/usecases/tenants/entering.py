"""Signing in: from the credential of a request to its principal."""

import hmac
import time
from collections.abc import Callable

import structlog

from service.core import Core
from service.identity import ANYONE, OPERATOR, Principal
from service.usecases.tenants import tenants, tokens

LOOK_S = 1.0

logger = structlog.get_logger("relaxd.api")

Verify = Callable[[str], Principal | None]
"""The principal that a foreign issuer's token stands for, or None."""


class Gate:
    """Knows who may enter; safe to use from several threads.

    A service is open to anyone if it has no RELAXD_TOKEN, trusts no issuer, and never made a token:
    one whose RELAXD_TOKEN got lost stays closed.
    """

    def __init__(self, core: Core, verify: Verify | None = None) -> None:
        token = core.settings.token
        self._core = core
        self._operator = token.get_secret_value().encode() if token else None
        self._verify = verify
        self._open_until = 0.0
        self._closed = self._operator is not None or verify is not None

    def is_open(self) -> bool:
        """True if requests need no credential; raises DatabaseUnavailable."""
        if not self._closed and time.monotonic() >= self._open_until:
            self._closed = tokens.are_there_any(self._core)
            self._open_until = time.monotonic() + LOOK_S
        return not self._closed

    def at_once(self, credential: str) -> Principal | None:
        """Do what `enter` does without the database; None where that is needed."""
        if not self._closed and time.monotonic() < self._open_until:
            return ANYONE
        if self._operator and hmac.compare_digest(credential.encode(), self._operator):
            return OPERATOR
        return None

    def enter(self, credential: str) -> Principal | None:
        """The principal of a credential, which is empty where the request brings none; None for
        whoever has to stay outside. Raises DatabaseUnavailable.
        """
        if self.is_open():
            return ANYONE
        if principal := self.at_once(credential):
            return principal
        if credential.startswith(tokens.PREFIX):
            return tokens.sign_in(self._core, credential)
        return self._foreign(credential) if credential else None

    def _foreign(self, credential: str) -> Principal | None:
        principal = self._verify(credential) if self._verify else None
        if principal is not None and not tenants.is_known(self._core, principal.tenant):
            logger.warning("an issuer's entry names no tenant", tenant=principal.tenant)
            return None
        return principal
