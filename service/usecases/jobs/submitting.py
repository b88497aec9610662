"""Submitting: a request becomes a job with one queued build per target."""

import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from artifacts.errors import BlobCorrupt, BlobNotFound
from artifacts.models import files_of_model
from artifacts.store import hex_of
from relaxd.contract.canonical import canonical_bytes, digest_of
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import State
from relaxd.contract.urgency import Urgency
from relaxd.errors import DeclarationError
from service.core import Core
from service.db.creating import NewJob, create
from service.db.schema import jobs
from service.domain import Artifact, EventType, Job, Kind
from service.errors import IdempotencyConflict, UnknownBlob, UnknownModel
from service.identity import DEFAULT
from service.usecases import auditing
from service.usecases.auditing import Change
from service.usecases.builds import fleet
from service.usecases.builds.answering import Answer, Requester, answers
from service.usecases.builds.tracing import TRACEPARENT
from service.usecases.store import holdings, indexing
from service.usecases.store.holdings import TenantBlobs, Unheld
from service.usecases.tenants import admission
from service.usecases.tenants.admission import AdmissionStatus

_ANYWHERE = "native"
"""The target of an inspection's build; it goes to any worker that offers `Kind.INSPECT`, which is
every worker.
"""

_FILES_S = 3600.0
"""How long a process remembers the files of a model, which never change."""


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
    project: str = "",
    urgency: Urgency = Urgency(),
    unheld: Unheld | None = None,
) -> Job:
    """See `Jobs.submit`; an inspection gets one build, whatever targets it names. `unheld` are
    blobs that the tenant has put for this job. Raises DeclarationError where weights are to be
    calibrated without samples, or the deadline has passed.
    """
    if kind is Kind.COMPILE:
        request.require_samples()
    targets = request.targets if kind is Kind.COMPILE else (_ANYWHERE,)
    for target in targets:
        core.compiler.check(target)
    build_targets = [
        {"target": target, "capability": _capability(core, kind, target)} for target in targets
    ]
    status = _status(core, tenant, model, request, frozenset(unheld.sizes if unheld else ()))
    idempotency_key = idempotency_key and _key_of(tenant, idempotency_key)
    declared = request.to_json()
    document = canonical_bytes([kind, model, model_name, declared])
    fingerprint = digest_of(document)
    if idempotency_key and (job := _earlier(core, idempotency_key, fingerprint, tenant)):
        return job
    _require_time(core, urgency)
    if not wait_for_worker:
        fleet.require(core, {each["target"]: each["capability"] for each in build_targets})
    admission.admit(core, status, len(targets), len(document))
    known = _answers(core, status, model, request, build_targets) if kind is Kind.COMPILE else {}
    header = {
        "id": secrets.token_hex(8),
        "kind": kind,
        "model": model,
        "model_name": model_name,
        "request": declared,
        "tenant": tenant,
        "idempotency_key": idempotency_key,
        "fingerprint": fingerprint,
        "project": project,
        "index_digest": indexing.prepare_index(core, tenant, _artifacts(known)),
    }
    write = partial(_write, core, request, header, build_targets, known, change, urgency)
    try:
        job = write(unheld)
    except IntegrityError:
        # Somebody used the key, or put the same blob, between our look and our insert.
        if idempotency_key and (earlier := _earlier(core, idempotency_key, fingerprint, tenant)):
            return earlier
        if not unheld:
            raise
        unheld.hold(core)
        job = write(None)
    for build in job.builds:
        if build.state is State.QUEUED:
            core.doorbell.ring(build.id, build.capability)
    return indexing.with_index(job)


def _require_time(core: Core, urgency: Urgency) -> None:
    now = core.clock()
    ends = urgency.ends_at(now)
    if ends is not None and ends <= now:
        raise DeclarationError(
            f"the deadline passed {now - ends:.0f} s ago",
            field="deadline",
            hint="give a later one, or leave it out",
        )


def _status(
    core: Core, tenant: str, model: str, request: CompileRequest, sent: frozenset[str]
) -> AdmissionStatus:
    """How the tenant stands; raises UnknownModel and UnknownBlob for what it may not read, and has
    not sent.
    """
    hex_of(model)
    status = admission.admission_status(core, tenant, model)
    if not ((model in sent or status.may_read) and core.store.blobs.touch(model)):
        raise UnknownModel(model)
    blobs = TenantBlobs(core, tenant, known=sent)
    _check_files(core, blobs, model)
    if request.samples and not blobs.touch(request.samples):
        raise UnknownBlob(request.samples, field="samples")
    return status


def _check_files(core: Core, blobs: TenantBlobs, model: str) -> None:
    """Raise UnknownBlob for a file of the model that the tenant may not read, and DeclarationError
    for a manifest that is no model's.
    """

    def find() -> Mapping[str, str] | None:
        return files_of_model(core.store.blobs, model)

    try:
        files = core.recent.get((_check_files, model), core.clock(), _FILES_S, find)
    except (BlobNotFound, BlobCorrupt) as error:
        raise UnknownModel(model) from error
    digests = list(files.values()) if files else []
    readable = holdings.look_up(blobs, digests)
    for digest in digests:
        if not readable.has(digest):
            raise UnknownBlob(digest, field="model")


def _answers(
    core: Core,
    status: AdmissionStatus,
    model: str,
    request: CompileRequest,
    build_targets: Sequence[Mapping[str, str]],
) -> dict[str, Answer]:
    """Look up cached results, by target."""
    if status.row is None:
        return {}
    shares = core.settings.shared_cache or status.row.shares_cache
    requester = Requester(status.tenant, shares, model, request)
    return answers(core, requester, {each["target"]: each["capability"] for each in build_targets})


def _artifacts(known: Mapping[str, Answer]) -> dict[str, Artifact]:
    outcomes = {target: answer.outcome for target, answer in known.items()}
    return {target: outcome.artifact for target, outcome in outcomes.items() if outcome.artifact}


def _write(
    core: Core,
    request: CompileRequest,
    header: dict[str, Any],
    build_targets: Sequence[Mapping[str, str]],
    known: Mapping[str, Answer],
    change: Change | None,
    urgency: Urgency,
    unheld: Unheld | None,
) -> Job:
    """The job and all that is written with it."""
    job_id, tenant = header["id"], header["tenant"]
    keys = {target: answer.flight_key for target, answer in known.items()}
    rows = [
        {
            "id": f"{job_id}-{position}",
            "job_id": job_id,
            "position": position,
            "tenant": tenant,
            "action_key": keys.get(each["target"]),
            **each,
        }
        for position, each in enumerate(build_targets)
    ]
    traceparent = core.tracer.current()
    traced = {TRACEPARENT: traceparent} if traceparent else {}
    note = (EventType.JOB_QUEUED, {"targets": [each["target"] for each in build_targets], **traced})
    outcomes = {target: answer.outcome for target, answer in known.items()}
    with core.writing() if unheld else core.writing_at_once() as tx:
        entry = auditing.entry_of(change, tx.now, tenant=tenant, subject=job_id) if change else None
        job = create(tx, NewJob(request, header, rows, note, outcomes, urgency, entry))
        if unheld:  # last, since others of the tenant wait for its row from here on
            unheld.hold_in(tx)
    if change:
        change.written = True
    if job.state.terminal:  # every result was in the cache, and the statement above is one
        with core.writing() as tx:
            tx.post_finished(job_id)
    return job


def _key_of(tenant: str, key: str) -> str:
    """The key as it is stored: unique within the tenant. No client's key has a space."""
    return key if tenant == DEFAULT else f"{tenant} {key}"


def _capability(core: Core, kind: Kind, target: str) -> str:
    return core.compiler.capability(target) if kind is Kind.COMPILE else kind.value


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
