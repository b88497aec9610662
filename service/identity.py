"""Who asks: tenants, the tokens that they sign in with, and what a principal may do."""

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

DEFAULT = "default"
"""The operator's tenant: the only one of a service that nobody has configured."""
HOME = "relaxd"
"""The first part of the names of its repositories."""
TENANT = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
LONGEST_TENANT = 40
RESERVED = frozenset({DEFAULT, HOME})


class Scope(StrEnum):
    """The rights of a token; ADMIN includes the others."""

    SUBMIT = "submit"
    READ = "read"
    PULL = "pull"
    PUSH = "push"
    ADMIN = "admin"


ALL_SCOPES = frozenset(Scope)


class Method(StrEnum):
    """How a principal signed in; NONE on a service that asks nobody to."""

    NONE = "none"
    OPERATOR = "operator"
    TOKEN = "token"
    OIDC = "oidc"


@dataclass(frozen=True)
class Principal:
    """Whoever a request comes from; `name` is for people and the audit log."""

    tenant: str
    name: str
    scopes: frozenset[Scope]
    method: Method

    def has_any(self, scopes: frozenset[Scope]) -> bool:
        """True if one of the scopes is among its own."""
        return Scope.ADMIN in self.scopes or bool(self.scopes & scopes)

    @property
    def operates(self) -> bool:
        """True if it may act for the whole service: an admin of the operator's tenant."""
        return self.tenant == DEFAULT and Scope.ADMIN in self.scopes


@dataclass(frozen=True)
class Login:
    """One way to sign in on the web page: the issuer, as what client, which scopes are asked of
    it, and its page; None while the issuer is away.
    """

    issuer: str
    client_id: str
    scopes: tuple[str, ...]
    authorization_url: str | None


ANYONE = Principal(DEFAULT, "anyone", ALL_SCOPES, Method.NONE)
OPERATOR = Principal(DEFAULT, "operator", ALL_SCOPES, Method.OPERATOR)


def namespace(tenant: str) -> str:
    """The first part of the names of the tenant's repositories."""
    return HOME if tenant == DEFAULT else tenant


def bundles_of(tenant: str) -> str:
    """The repository of the tenant's bundles and of the tags `job-<id>`."""
    return f"{namespace(tenant)}/bundles"


def is_tenant_name(name: str) -> bool:
    """True if a new tenant may be called that."""
    return (
        len(name) <= LONGEST_TENANT and TENANT.fullmatch(name) is not None and name not in RESERVED
    )


@dataclass(frozen=True)
class Limits:
    """The limits of a tenant, None where there is none: bytes stored, builds running and queued
    at a time, requests a second.
    """

    stored_bytes: int | None = None
    running: int | None = None
    queued: int | None = None
    requests: float | None = None


@dataclass(frozen=True)
class Tenant:
    """Users who share jobs, models and bundles with each other and with nobody else.

    weight: its part of the workers while others wait too, relative to theirs. shares_cache: whether
    its builds give results to, and take results from, all other tenants that share.
    """

    name: str
    created_at: datetime
    limits: Limits = Limits()
    weight: float = 1.0
    shares_cache: bool = False
    stored_bytes: int = 0


@dataclass(frozen=True)
class Deletion:
    """The things deleted with a tenant: its jobs, tokens and tags."""

    name: str
    jobs: int
    tokens: int
    tags: int


@dataclass(frozen=True)
class Token:
    """A token without its secret."""

    id: str
    tenant: str
    name: str
    scopes: frozenset[Scope]
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None


@dataclass(frozen=True)
class Entry:
    """One line of the audit log: who did what to which, and how it ended."""

    id: int
    time: datetime
    tenant: str
    principal: str
    action: str
    subject: str
    outcome: str
    request_id: str | None
    detail: dict[str, object]
