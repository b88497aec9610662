"""The audit log over HTTP, and what writes it: an entry for each request that changes something."""

import threading
import time
from collections.abc import MutableMapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, Query, Request
from pydantic import BaseModel

from service.api.context import UsePrincipal, UseServices
from service.api.scopes import principal_of
from service.api.tenancy import OfTenant, choose_tenant
from service.api.tenant_threads import TenantRoute
from service.core import Core
from service.errors import DatabaseUnavailable
from service.identity import DEFAULT, Entry, Principal
from service.usecases import auditing
from service.usecases.auditing import Change

REFUSALS_S = 60.0
MOST_REFUSALS = 20
"""Entries of one tenant in so many seconds for requests that changed nothing."""
MOST_ADDRESSES = 20
LONGEST_SUBJECT = 300

router = APIRouter(route_class=TenantRoute, prefix="/v1", tags=["access"])
logger = structlog.get_logger("relaxd.audit")


def change_by(request: Request, status: int) -> Change:
    """The entry for a request that is answered with that status, to be written with its change."""
    principal, state = principal_of(request), request.state
    detail: dict[str, object] = {"status": status, "method": principal.method.value}
    return Change(principal.name, state.action, getattr(state, "request_id", None), detail)


def record_success(request: Request, change: Change) -> None:
    """Have no second entry written for a request whose change has its own."""
    if change.written:
        request.state.action = None


class EntryOut(BaseModel):
    """One change: `outcome` is `done`, `refused` or `failed`."""

    id: int
    time: datetime
    tenant: str
    principal: str
    action: str
    subject: str
    outcome: str
    request_id: str | None
    detail: dict[str, Any]

    @classmethod
    def of(cls, entry: Entry) -> "EntryOut":
        """From the domain."""
        return cls(**vars(entry))


class AuditOut(BaseModel):
    """Entries, the newest first."""

    entries: list[EntryOut]


@router.get("/audit", summary="Read the audit log")
def read_audit(
    services: UseServices,
    principal: UsePrincipal,
    tenant: OfTenant = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    before: Annotated[
        int | None, Query(ge=1, le=1 << 53, description="The id of the last entry seen.")
    ] = None,
) -> AuditOut:
    """The tenant's entries; for operators those of all tenants, or of one."""
    everyones = principal.operates and tenant is None
    of = None if everyones else choose_tenant(principal, tenant)
    entries = auditing.list_entries(services.core, of, limit, before)
    return AuditOut(entries=[EntryOut.of(entry) for entry in entries])


@dataclass
class _Window:
    """A tenant's requests that changed nothing until a time: those with an entry, and those
    without since.
    """

    until: float = 0.0
    written: int = 0
    left_out: int = 0


class Auditor:
    """Writes the log; what it cannot write stands in the service's own log."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._lock = threading.Lock()
        self._refused = 0
        self._addresses: set[str] = set()
        self._next_at = 0.0
        self._windows: dict[str, _Window] = {}

    def entry_of(
        self,
        principal: Principal,
        action: str,
        status: int,
        state: MutableMapping[str, Any],
        parameters: MutableMapping[str, Any],
    ) -> dict[str, Any] | None:
        """The entry of a request that changes something and is answered with that status. One that
        changed nothing has none where many did so: the next that has one tells their number.
        """
        if action == "upload" and status in (202, 204):  # a part, not yet a blob
            return None
        outcome = "done" if status < 400 else "refused" if status < 500 else "failed"
        detail: dict[str, object] = {"status": status, "method": principal.method.value}
        if outcome != "done":
            left_out = self._count_refusal(principal.tenant)
            if left_out is None:
                return None
            detail |= {"refused_before": left_out} if left_out else {}
        return {
            "tenant": principal.tenant,
            "principal": principal.name,
            "action": action,
            "subject": _subject(state, parameters)[:LONGEST_SUBJECT],
            "outcome": outcome,
            "request_id": state.get("request_id"),
            "detail": {**detail, **state.get("detail", {})},
        }

    def _count_refusal(self, tenant: str) -> int | None:
        """None where the tenant has had its entries; else how many requests had none before."""
        with self._lock:
            window = self._windows.setdefault(tenant, _Window())
            if time.monotonic() >= window.until:
                window.until, window.written = time.monotonic() + REFUSALS_S, 0
            if window.written >= MOST_REFUSALS:
                window.left_out += 1
                return None
            window.written += 1
            left_out, window.left_out = window.left_out, 0
            return left_out

    def record_refusal(self, address: str) -> None:
        """A request could not sign in: written at once, and then once a minute how many."""
        with self._lock:
            self._refused += 1
            if len(self._addresses) < MOST_ADDRESSES:
                self._addresses.add(address)
            if time.monotonic() < self._next_at:
                return
            detail = {"count": self._refused, "addresses": sorted(self._addresses)}
            self._refused, self._addresses = 0, set()
            self._next_at = time.monotonic() + REFUSALS_S
        unknown = {"tenant": DEFAULT, "principal": "unknown", "action": "sign-in", "subject": ""}
        self.write({**unknown, "outcome": "refused", "detail": detail})

    def write(self, entry: dict[str, Any]) -> None:
        """Write an entry to the database."""
        try:
            auditing.record(self._core, **entry)
        except DatabaseUnavailable as error:
            logger.error("an audit entry was not written", **entry, error=str(error))


def _subject(state: MutableMapping[str, Any], parameters: MutableMapping[str, Any]) -> str:
    named = state.get("subject") or state.get("job_id")
    return str(named or " ".join(str(value) for value in parameters.values()))
