"""Tokens: made, listed, revoked and rotated; the database has a hash of each secret only."""

import hashlib
import hmac
import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass

import structlog
from sqlalchemy import ColumnElement, Float, bindparam, insert, or_, select, update

from service.core import Core
from service.db import records
from service.db.schema import tokens
from service.db.transaction import Transaction
from service.errors import DatabaseUnavailable, UnknownToken
from service.identity import Method, Principal, Scope, Token
from service.usecases.tenants import tenants

PREFIX = "relaxd_"
TOKEN = re.compile(r"relaxd_([0-9a-f]{16})_([0-9a-f]{64})")
USE_NOTED_S = 600.0
"""Age from which the time of a token's last use is written again: most requests only read."""
_DAY_S = 86400.0

logger = structlog.get_logger("relaxd.api")


@dataclass(frozen=True)
class Issued:
    """A new token and its text, which is not kept."""

    token: Token
    text: str


def create(
    core: Core, tenant: str, name: str, scopes: Collection[Scope], days: float | None = None
) -> Issued:
    """A new token of the tenant, for so many days or without end; raises UnknownTenant."""
    with core.writing() as tx:
        tenants.find(tx, tenant)
        return _issue(tx, tenant, name, scopes, None if days is None else tx.now + days * _DAY_S)


def _issue(
    tx: Transaction, tenant: str, name: str, scopes: Collection[Scope], expires_at: float | None
) -> Issued:
    token_id, secret = secrets.token_hex(8), secrets.token_hex(32)
    values = {
        "id": token_id,
        "tenant": tenant,
        "name": name,
        "secret_hash": _hash(secret),
        "scopes": sorted(scopes),
        "created_at": tx.now,
        "expires_at": expires_at,
    }
    tx.connection.execute(insert(tokens).values(values))
    return Issued(_find(tx, tenant, token_id), f"{PREFIX}{token_id}_{secret}")


def _find(tx: Transaction, tenant: str, token_id: str) -> Token:
    query = select(tokens).where(tokens.c.id == token_id, tokens.c.tenant == tenant)
    row = tx.connection.execute(query).one_or_none()
    if row is None:
        raise UnknownToken(token_id)
    return records.token_from(row)


def list_all(core: Core, tenant: str) -> list[Token]:
    """The tenant's tokens, the oldest first, revoked and expired ones too; raises UnknownTenant."""
    query = select(tokens).where(tokens.c.tenant == tenant)
    with core.reading() as tx:
        tenants.find(tx, tenant)
        rows = tx.connection.execute(query.order_by(tokens.c.created_at, tokens.c.id))
        return [records.token_from(row) for row in rows]


def revoke(core: Core, tenant: str, token_id: str) -> Token:
    """End the token at once and for good; one that has ended stays as it is. Raises
    UnknownToken.
    """
    with core.writing() as tx:
        _find(tx, tenant, token_id)
        _end(tx, token_id)
        return _find(tx, tenant, token_id)


def _end(tx: Transaction, token_id: str) -> None:
    living = (tokens.c.id == token_id) & tokens.c.revoked_at.is_(None)
    tx.connection.execute(update(tokens).where(living).values(revoked_at=tx.now))


def rotate(core: Core, tenant: str, token_id: str, overlap_hours: float = 0) -> Issued:
    """A successor with the same name, scopes and length of life. The token itself ends at once, or
    after `overlap_hours` if it has as long to live. Raises UnknownToken, also for one that has
    ended.
    """
    with core.writing() as tx:
        row = tx.connection.execute(
            select(tokens).where(tokens.c.id == token_id, tokens.c.tenant == tenant, _lives(tx.now))
        ).one_or_none()
        if row is None:
            raise UnknownToken(token_id)
        life = None if row.expires_at is None else row.expires_at - row.created_at
        old = records.token_from(row)
        new = _issue(tx, tenant, old.name, old.scopes, None if life is None else tx.now + life)
        if overlap_hours > 0:
            until = tx.now + overlap_hours * 3600
            sooner = or_(tokens.c.expires_at.is_(None), tokens.c.expires_at > until)
            mine = update(tokens).where(tokens.c.id == token_id, sooner)
            tx.connection.execute(mine.values(expires_at=until))
        else:
            _end(tx, token_id)
        return new


def sign_in(core: Core, text: str) -> Principal | None:
    """The principal that the token stands for; None for a token that is malformed, unknown, wrong,
    revoked or expired. Raises DatabaseUnavailable.
    """
    match = TOKEN.fullmatch(text)
    if match is None:
        return None
    token_id, secret = match.groups()
    with core.reading() as tx:
        arguments = {"token_id": token_id, "now": tx.now}
        row = tx.connection.execute(_LIVING, arguments).one_or_none()
    if not hmac.compare_digest(_hash(secret), row.secret_hash if row else ""):
        return None
    assert row is not None
    token = records.token_from(row)
    if row.last_used_at is None or row.last_used_at < tx.now - USE_NOTED_S:
        _note_use(core, token_id)
    return Principal(token.tenant, f"{token.name} ({token.id})", token.scopes, Method.TOKEN)


def _lives(now: float | ColumnElement[float]) -> ColumnElement[bool]:
    ends = or_(tokens.c.expires_at.is_(None), tokens.c.expires_at > now)
    return tokens.c.revoked_at.is_(None) & ends


_LIVING = select(tokens).where(
    tokens.c.id == bindparam("token_id"), _lives(bindparam("now", type_=Float))
)
"""Made once: every request asks."""


def _note_use(core: Core, token_id: str) -> None:
    try:
        with core.writing() as tx:
            mine = update(tokens).where(tokens.c.id == token_id)
            tx.connection.execute(mine.values(last_used_at=tx.now))
    except DatabaseUnavailable as error:  # whoever signed in has not to wait for that
        logger.warning("a token's use was not noted", token=token_id, error=str(error))


def are_there_any(core: Core) -> bool:
    """True if a token was ever made."""
    with core.reading() as tx:
        return tx.connection.execute(select(tokens.c.id).limit(1)).one_or_none() is not None


def _hash(secret: str) -> str:
    # A secret of 256 random bits needs no slow hash: it cannot be guessed.
    return hashlib.sha256(secret.encode()).hexdigest()
