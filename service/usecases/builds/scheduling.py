"""Whose build is next: tenants take turns by what they run, their weight, and what they have had.

Start-time fair queuing, where every build counts alike: a tenant's next turn begins when its last
one ends (`served`), or with the latest turn that anyone has begun if it had nothing to do
meanwhile. A turn is 1 / weight long, and the earliest beginning comes first. So nobody saves turns
up. Of a tenant's own builds the one that is due first begins (`Urgency.due_at`), and none whose
deadline has passed.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import (
    ColumnElement,
    ScalarSelect,
    Select,
    and_,
    exists,
    func,
    or_,
    select,
    update,
)

from relaxd.contract.states import State
from service.core import Core
from service.db.schema import builds, tenants
from service.db.transaction import Transaction
from service.domain import Kind


@dataclass(frozen=True)
class _Candidate:
    """A tenant with queued builds; `oldest` is when the first one to begin was submitted."""

    name: str
    weight: float
    running: int
    running_limit: int | None
    begins: float
    oldest: float

    @property
    def may_run(self) -> bool:
        return self.running_limit is None or self.running < self.running_limit

    @property
    def order(self) -> tuple[float, float, float]:
        return self.running / self.weight, self.begins, self.oldest


PREFER_S = 20.0
"""How long a build is left to a worker that can run its library on the target's own hardware, by
one that would emulate it."""


def next_build(
    core: Core, capabilities: Collection[str], elsewhere: Collection[str] = ()
) -> str | None:
    """The id of the build that a free worker should take, which another may take first: the one
    due first that could run, of the tenant that runs least for its weight and whose turn it is.

    elsewhere: targets of which another worker executes the builds, and this one does not.
    """
    with core.reading() as tx:
        for tenant in sorted(_candidates(tx, capabilities), key=lambda candidate: candidate.order):
            mine = ready(tx, capabilities).where(builds.c.tenant == tenant.name)
            first = mine.order_by(builds.c.due_at, builds.c.id).limit(1)
            if elsewhere:
                first = first.where(leave_to_others(tx, elsewhere))
            if row := tx.connection.execute(first).one_or_none():
                return str(row.id)
    return None


def _candidates(tx: Transaction, capabilities: Collection[str]) -> list[_Candidate]:
    now = _latest_turn(tx)
    of_tenant = builds.c.tenant == tenants.c.name
    queued = and_(of_tenant, builds.c.state == State.QUEUED, builds.c.capability.in_(capabilities))
    oldest = select(builds.c.created_at).where(queued).order_by(builds.c.due_at).limit(1)
    query = select(tenants, oldest.scalar_subquery().label("oldest"), _running().label("running"))
    return [
        candidate
        for row in tx.connection.execute(query)
        if row.oldest is not None
        and (
            candidate := _Candidate(
                row.name,
                row.weight,
                row.running,
                row.running_limit,
                max(now, row.served),
                row.oldest,
            )
        ).may_run
    ]


def _running() -> ScalarSelect[int]:
    mine = and_(builds.c.tenant == tenants.c.name, builds.c.state == State.RUNNING)
    return select(func.count()).select_from(builds).where(mine).scalar_subquery()


def _latest_turn(tx: Transaction) -> float:
    """When the latest turn of any tenant began."""
    query = select(func.max(tenants.c.served - 1 / tenants.c.weight))
    return max(0.0, float(tx.connection.execute(query).scalar_one()))


def enter(tx: Transaction, tenant: str) -> bool:
    """True if the tenant may run one build more, of which note is taken; call it once it is sure to
    begin, in the transaction that claims it.
    """
    others = select(exists().where(tenants.c.name != tenant))
    row = tx.connection.execute(select(tenants).where(tenants.c.name == tenant)).one()
    if row.running_limit is None and not tx.connection.execute(others).scalar_one():
        return True
    # The lock lets one claim of a tenant count at a time.
    mine = select(tenants, _running().label("running")).where(tenants.c.name == tenant)
    tx.connection.execute(select(tenants.c.name).where(tenants.c.name == tenant).with_for_update())
    row = tx.connection.execute(mine).one()
    if row.running_limit is not None and row.running >= row.running_limit:
        return False
    served = max(_latest_turn(tx), row.served) + 1 / row.weight
    tx.connection.execute(update(tenants).where(tenants.c.name == tenant).values(served=served))
    return True


def ready(tx: Transaction, capabilities: Collection[str]) -> Select[str, str]:
    """Queued builds that ask for one of these capabilities and may begin: no equal one runs, and
    their deadline has not passed.
    """
    wanted = builds.c.capability.in_(capabilities)
    is_late = and_(builds.c.deadline.is_not(None), builds.c.deadline <= tx.now)
    return select(builds.c.id, builds.c.capability).where(
        builds.c.state == State.QUEUED, wanted, ~is_late, ~has_running_equal()
    )


def has_running_equal() -> ColumnElement[bool]:
    """The condition on builds of which an equal one runs."""
    other = builds.alias()
    same = other.c.action_key == builds.c.action_key
    return exists().where(same, other.c.state == State.RUNNING)


def leave_to_others(tx: Transaction, elsewhere: Collection[str]) -> ColumnElement[bool]:
    """The condition that leaves out fresh builds of targets that another worker executes."""
    return or_(builds.c.target.not_in(elsewhere), builds.c.created_at <= tx.now - PREFER_S)


MOST_POSITIONS = 100
"""How many builds of a tenant are told their place in the queue."""


def positions(tx: Transaction, tenant: str) -> dict[str, int]:
    """The place of each build, by its id, among the queued ones of its tenant that the same workers
    take; of the tenant's first MOST_POSITIONS, since nobody waits for a number behind them.
    """
    first = (
        select(builds.c.id, builds.c.capability)
        .where(
            builds.c.tenant == tenant,
            builds.c.state == State.QUEUED,
            builds.c.capability != Kind.INSPECT,
        )
        .order_by(builds.c.due_at, builds.c.id)
        .limit(MOST_POSITIONS)
    )
    ahead: Counter[str] = Counter()
    position_of = {}
    for row in tx.connection.execute(first):
        ahead[row.capability] += 1
        position_of[row.id] = ahead[row.capability]
    return position_of
