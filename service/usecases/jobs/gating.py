"""Gates that a client judged: the service runs no bundle, and passes on which of them failed."""

from collections.abc import Sequence

from sqlalchemy import select

from relaxd.errors import DeclarationError
from service.core import Core
from service.db import outbox
from service.db.schema import builds
from service.domain import FailedGate, HookEvent
from service.usecases import auditing
from service.usecases.auditing import Change


def report_failed(
    core: Core,
    tenant: str,
    job_id: str,
    target: str,
    failed: Sequence[FailedGate],
    baseline: str | None,
    change: Change,
) -> None:
    """Tell webhooks of a build whose gates failed against `baseline`, and the audit log, in one
    transaction. Raises UnknownJob, and DeclarationError for a target that the job has not.
    """
    with core.writing() as tx:
        row = tx.lock(job_id, tenant)
        targets = tx.connection.scalars(select(builds.c.target).where(builds.c.job_id == job_id))
        if target not in (known := list(targets)):
            raise DeclarationError(
                f"job {job_id} has no target {target!r}",
                field="target",
                hint=f"name one: {', '.join(known)}",
            )
        change.detail |= {"target": target, "gates": [one.gate for one in failed]}
        entry = auditing.entry_of(change, tx.now, tenant=tenant, subject=job_id)
        tx.connection.execute(auditing.ENTRY, entry)
        data = {"job": job_id, "name": row.model_name, "target": target, "baseline": baseline}
        data["failed"] = [{"gate": one.gate, "result": one.result} for one in failed]
        data["by"] = change.principal
        outbox.post(tx.connection, tx.now, tenant, HookEvent.GATE_FAILED, data)
    change.written = True
