"""Submitting: a request becomes a job with one queued build per target."""

import secrets

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from artifacts.store import hex_of
from relaxd.contract.canonical import canonical_bytes, digest_of
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import State
from service.core import Core
from service.db.schema import jobs
from service.db.transaction import Transaction
from service.domain import EventType, Job, Kind
from service.errors import IdempotencyConflict, UnknownBlob, UnknownModel
from service.identity import DEFAULT
from service.usecases import admission, auditing, fleet, holding
from service.usecases.auditing import Change
from service.usecases.tracing import TRACEPARENT

_ANYWHERE = "native"
"""The target of an inspection's build; it goes to any worker that offers `Kind.INSPECT`, which is
every worker.
"""


def submit(
    core: Core,
    model: str,
    request: CompileRequest,
    *,
    idempotency_key: str | None = None,
    model_name: str | None = None,
    kind: Kind = Kind.COMPILE,
    tenant: str = DEFAULT,
    wait_for_worker: bool = True,
    change: Change | None = None,
) -> Job:
    """See `Jobs.submit`; an inspection gets one build, whatever targets it names."""
    targets = request.targets if kind is Kind.COMPILE else (_ANYWHERE,)
    for target in targets:
        core.compiler.check(target)
    places = [
        {"target": target, "capability": _capability(core, kind, target)} for target in targets
    ]
    hex_of(model)
    standing = admission.standing(core, tenant, model)
    if not (standing.may_read and core.store.blobs.touch(model)):
        raise UnknownModel(model)
    if request.samples and not holding.view(core, tenant).blobs.touch(request.samples):
        raise UnknownBlob(request.samples, field="samples")
    idempotency_key = idempotency_key and _key_of(tenant, idempotency_key)
    declared = request.to_json()
    fingerprint = digest_of(canonical_bytes([kind, model, model_name, declared]))
    if idempotency_key and (job := _earlier(core, idempotency_key, fingerprint, tenant)):
        return job
    if not wait_for_worker:
        fleet.require(core, {place["target"]: place["capability"] for place in places})
    admission.admit(core, standing, len(targets))
    job_id = secrets.token_hex(8)
    traceparent = core.tracer.current()
    traced = {TRACEPARENT: traceparent} if traceparent else {}
    header = {
        "id": job_id,
        "kind": kind,
        "model": model,
        "model_name": model_name,
        "request": declared,
        "tenant": tenant,
    }
    try:
        with core.writing() as tx:
            rows = [
                {
                    "id": f"{job_id}-{position}",
                    "job_id": job_id,
                    "position": position,
                    "rung_at": tx.now,
                    "tenant": tenant,
                    **place,
                    **_fresh(tx),
                }
                for position, place in enumerate(places)
            ]
            job = tx.create(
                {
                    **header,
                    "idempotency_key": idempotency_key,
                    "fingerprint": fingerprint,
                    **_fresh(tx),
                },
                rows,
                (EventType.JOB_QUEUED, {"targets": list(targets), **traced}),
            )
            if change:
                auditing.write(tx, change, tenant=tenant, subject=job_id)
    except IntegrityError:
        # Somebody used the key between our look and our insert.
        if idempotency_key and (earlier := _earlier(core, idempotency_key, fingerprint, tenant)):
            return earlier
        raise
    if change:
        change.written = True
    for build in job.builds:
        core.doorbell.ring(build.id, build.capability)
    return job


def _key_of(tenant: str, key: str) -> str:
    """The key as it is stored: unique within the tenant. No client's key has a space."""
    return key if tenant == DEFAULT else f"{tenant} {key}"


def _capability(core: Core, kind: Kind, target: str) -> str:
    return core.compiler.capability(target) if kind is Kind.COMPILE else kind.value


def _fresh(tx: Transaction) -> dict[str, str | float]:
    return {"state": State.QUEUED, "created_at": tx.now}


def _earlier(core: Core, key: str, fingerprint: str, tenant: str) -> Job | None:
    with core.reading() as tx:
        row = tx.connection.execute(
            select(jobs.c.id, jobs.c.fingerprint).where(jobs.c.idempotency_key == key)
        ).one_or_none()
        if row is None:
            return None
        if row.fingerprint != fingerprint:
            raise IdempotencyConflict(key.removeprefix(_key_of(tenant, "")), row.id)
        return tx.job(row.id)
