"""Reporting: stores a worker's events about its build if the claim's fence still holds."""

from collections.abc import Sequence

from sqlalchemy import bindparam, select, update

from relaxd.contract.states import State
from service.core import Core
from service.db.schema import builds
from service.db.transaction import Note
from service.domain import Claim, EventType
from service.errors import StaleClaim

_LINES = select(builds.c.log_lines).where(builds.c.id == bindparam("build"))
_PROGRESSED = (
    update(builds)
    .where(builds.c.id == bindparam("build"))
    .values(log_lines=bindparam("lines"), stage=bindparam("to"))
)


def beat(core: Core, claim: Claim) -> bool:
    """Renew the lease; whether the build is to be cancelled. Raises StaleClaim."""
    claimed = (
        (builds.c.id == claim.build_id)
        & (builds.c.fence == claim.fence)
        & (builds.c.state == State.RUNNING)
    )
    with core.writing() as tx:
        lease = (
            update(builds)
            .where(claimed)
            .values(lease_until=tx.now + core.settings.lease_s)
            .returning(builds.c.cancel_requested)
        )
        cancelled: bool | None = tx.connection.scalars(lease).one_or_none()
    if cancelled is None:
        raise StaleClaim(f"build {claim.build_id} is no longer held under fence {claim.fence}")
    return cancelled


def progress(core: Core, claim: Claim, notes: Sequence[Note]) -> None:
    """Append events to the build's job and note the newest stage among them; lines beyond the
    limit are dropped. Raises StaleClaim.
    """
    with core.writing() as tx:
        build = tx.require_claim(claim)
        count = tx.connection.execute(_LINES, {"build": build.id}).scalar_one()
        accepted, lines = _bounded(notes, count, core.settings.max_log_lines)
        tx.emit(build.job_id, build.target, *accepted)
        stage = next((data["stage"] for _, data in reversed(notes) if "stage" in data), build.stage)
        arguments = {"build": build.id, "lines": lines, "to": stage}
        tx.connection.execute(_PROGRESSED, arguments)


def _bounded(notes: Sequence[Note], sent: int, limit: int) -> tuple[list[Note], int]:
    """Drops log lines and messages beyond the limit, the first of which becomes a remark; returns
    the other notes, and how many lines and messages the build has sent so far.
    """
    accepted: list[Note] = []
    for kind, data in notes:
        sent += (text := "line" in data or "message" in data)
        if not text or sent <= limit:
            accepted.append((kind, data))
        elif sent == limit + 1:
            accepted.append(
                (
                    EventType.BUILD_LOG,
                    {"line": f"[the log ends here: it has more than {limit} lines]"},
                )
            )
    return accepted, sent
