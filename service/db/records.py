"""Converts rows to domain objects and back."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row

from relaxd.contract.failures import Failure
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import Stage, State
from service.domain import (
    Artifact,
    Build,
    Delivery,
    Event,
    EventType,
    HookEvent,
    Job,
    Kind,
    ModelAlias,
    ModelVersion,
    Outcome,
    Pin,
    RegisteredModel,
    Webhook,
    Worker,
)
from service.identity import Entry, Limits, Scope, Tenant, Token


def moment(seconds: float) -> datetime:
    """The stored time as an aware datetime."""
    return datetime.fromtimestamp(seconds, UTC)


def maybe(seconds: float | None) -> datetime | None:
    """The stored time, where there is one."""
    return None if seconds is None else moment(seconds)


def build_from(row: Row[Any]) -> Build:
    """From a row of `builds`."""
    return Build(
        id=row.id,
        job_id=row.job_id,
        target=row.target,
        capability=row.capability,
        state=State(row.state),
        created_at=moment(row.created_at),
        stage=Stage(row.stage) if row.stage else None,
        action_key=row.action_key,
        cached=row.cached,
        artifact=Artifact(**row.artifact) if row.artifact else None,
        report=row.report,
        profile=row.profile,
        numerics=row.numerics,
        error=Failure.from_json(row.error) if row.error else None,
        started_at=maybe(row.started_at),
        finished_at=maybe(row.finished_at),
        attempts=row.attempts,
        fence=row.fence,
        worker=row.worker,
        waiting_on=row.waiting_on,
        cancel_requested=row.cancel_requested,
        tenant=row.tenant,
        deadline=maybe(row.deadline),
    )


def job_from(row: Row[Any], builds: Sequence[Build]) -> Job:
    """From a row of `jobs` and the job's builds in order."""
    return Job(
        id=row.id,
        kind=Kind(row.kind),
        state=State(row.state),
        created_at=moment(row.created_at),
        model=row.model,
        model_name=row.model_name,
        request=CompileRequest.from_json(row.request),
        builds=tuple(builds),
        finished_at=maybe(row.finished_at),
        tenant=row.tenant,
        index_digest=row.index_digest,
        project=row.project,
        priority=row.priority,
    )


def event_from(row: Row[Any]) -> Event:
    """From a row of `events`."""
    return Event(row.seq, moment(row.time), EventType(row.type), row.target, row.data)


def worker_from(row: Row[Any]) -> Worker:
    """From a row of `workers`."""
    offers = row.capabilities
    # Workers of earlier releases list what they compile, and nothing else.
    if isinstance(offers, list):
        offers = {"compiles": offers, "verifies": {}}
    return Worker(
        row.name,
        row.hostname,
        tuple(offers["compiles"]),
        row.slots,
        moment(row.seen_at),
        offers["verifies"],
        offers.get("sandbox", "none"),
        offers.get("keys"),
    )


def pin_from(row: Row[Any]) -> Pin:
    """From a row of `pins`."""
    return Pin(
        row.digest, row.who, row.why, moment(row.created_at), maybe(row.expires_at), row.tenant
    )


def registered_from(row: Row[Any], aliases: Sequence[ModelAlias]) -> RegisteredModel:
    """From a row of `registered_models` and the model's aliases."""
    return RegisteredModel(
        row.name,
        row.project,
        row.labels,
        row.notes,
        moment(row.created_at),
        row.last_version,
        tuple(aliases),
    )


def version_from(row: Row[Any]) -> ModelVersion:
    """From a row of `model_versions`."""
    return ModelVersion(
        row.name,
        row.version,
        row.digest,
        row.job_id,
        row.submitter,
        row.labels,
        row.notes,
        moment(row.created_at),
    )


def alias_from(row: Row[Any]) -> ModelAlias:
    """From a row of `model_aliases`."""
    return ModelAlias(row.alias, row.version, row.previous, moment(row.moved_at), row.moved_by)


def webhook_from(row: Row[Any]) -> Webhook:
    """From a row of `webhooks`."""
    events = tuple(map(HookEvent, row.events))
    return Webhook(row.id, row.url, events, moment(row.created_at), row.created_by)


def delivery_from(row: Row[Any]) -> Delivery:
    """From a row of `deliveries`."""
    return Delivery(
        row.id,
        HookEvent(row.event),
        moment(row.created_at),
        row.attempts,
        maybe(row.next_at),
        maybe(row.delivered_at),
        row.error,
    )


def tenant_from(row: Row[Any]) -> Tenant:
    """From a row of `tenants`."""
    return Tenant(
        row.name,
        moment(row.created_at),
        Limits(row.stored_limit, row.running_limit, row.queued_limit, row.request_limit),
        row.weight,
        row.shares_cache,
        row.stored_bytes,
    )


def token_from(row: Row[Any]) -> Token:
    """From a row of `tokens`."""
    return Token(
        row.id,
        row.tenant,
        row.name,
        frozenset(map(Scope, row.scopes)),
        moment(row.created_at),
        maybe(row.expires_at),
        maybe(row.revoked_at),
        maybe(row.last_used_at),
    )


def entry_from(row: Row[Any]) -> Entry:
    """From a row of `audit`."""
    return Entry(
        row.id,
        moment(row.time),
        row.tenant,
        row.principal,
        row.action,
        row.subject,
        row.outcome,
        row.request_id,
        row.detail,
    )


def outcome_values(outcome: Outcome) -> dict[str, Any]:
    """Columns of `builds` that an outcome sets, the state aside."""
    return {
        "cached": outcome.cached,
        "artifact": outcome.artifact and outcome.artifact.to_json(),
        "report": outcome.report,
        "profile": outcome.profile,
        "numerics": outcome.numerics,
        "error": outcome.error and outcome.error.to_json(),
    }
