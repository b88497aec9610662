"""The view that KEDA scales the pools by, on every kind of database."""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil

import pytest
from sqlalchemy import text

from relaxd.contract.request import CompileRequest
from relaxd.contract.states import State
from service.core import Core
from service.db.pools import declare
from service.domain import Claim, Outcome
from service.errors import TargetNotServed
from service.identity import DEFAULT, Limits
from service.jobs import Jobs
from service.pools import read_pools
from service.usecases.builds import claiming, ending, fleet, scheduling
from service.usecases.store import holdings
from service.usecases.tenants import tenants
from tests.service.fakes import FakeClock

POOLS = "x86=*,!cuda-* cuda=cuda-* arm=aarch64*"
STABLE, TICKS_A_BUILD, LONGEST = 5, 3, 120
QUERY = text("SELECT builds, queued FROM scaling WHERE pool = :pool")

Submit = Callable[..., list[str]]


@pytest.fixture
def submit(core: Core, jobs: Jobs) -> Submit:
    """Queue builds of different models, or of one name; their ids."""
    declare(core.db, read_pools(POOLS))

    def submit(
        count: int, target: str = "x86-64-v3", tenant: str = DEFAULT, name: str = ""
    ) -> list[str]:
        request = CompileRequest.of(targets=(target,))
        ids = []
        for number in range(count):
            content = (name or f"{target} {number}").encode()
            model = holdings.view(core, tenant).blobs.put(content).digest
            ids.append(jobs.of(tenant).submit(model, request).builds[0].id)
        return ids

    return submit


def count_builds(core: Core, pool: str) -> tuple[int, int]:
    """Builds of a pool, and those of them that nobody runs."""
    with core.db.read() as connection:
        builds, queued = connection.execute(QUERY, {"pool": pool}).one()
        return int(builds), int(queued)


def finish(core: Core, build_id: str) -> None:
    claim = claiming.take(core, build_id, "worker")
    assert claim is not None
    ending.finish(core, claim, ending.CANCELLED)


def test_a_pool_counts_the_builds_that_its_workers_take(core: Core, submit: Submit) -> None:
    assert [count_builds(core, pool) for pool in ("x86", "cuda", "arm")] == [(0, 0)] * 3
    first, *_ = submit(3)
    submit(2, "cuda-sm80")
    assert count_builds(core, "x86") == (3, 3)
    assert count_builds(core, "cuda") == (2, 2)
    assert claiming.take(core, first, "worker")
    assert count_builds(core, "x86") == (3, 2)
    submit(1, "aarch64")
    assert (count_builds(core, "x86"), count_builds(core, "arm")) == ((4, 3), (1, 1))


def test_equal_builds_count_once_before_and_after_a_worker_has_met_them(
    core: Core, submit: Submit
) -> None:
    first, second, third = submit(3, name="same")
    assert count_builds(core, "x86") == (1, 1)
    claim = claiming.take(core, first, "worker")
    assert claim is not None
    assert count_builds(core, "x86") == (1, 0)
    assert claiming.take(core, second, "worker") is None
    assert count_builds(core, "x86") == (1, 0)
    ending.finish(core, claim, ending.CANCELLED)
    finish(core, third)
    assert count_builds(core, "x86")[0] <= 1


def test_a_tenant_counts_up_to_its_limit_of_running_builds(core: Core, submit: Submit) -> None:
    for name in ("a", "b"):
        tenants.create(core, name)
    tenants.change(core, "a", limits=Limits(running=2))
    first, *_ = submit(5, tenant="a")
    submit(3, tenant="b")
    submit(4, "cuda-sm80", tenant="a")
    assert count_builds(core, "x86") == (2 + 3, 5)
    assert count_builds(core, "cuda") == (2, 2)
    assert claiming.take(core, first, "worker")
    assert count_builds(core, "x86") == (2 + 3, 4)
    assert count_builds(core, "cuda") == (1, 1), "its second build may run in either pool"


def test_a_spot_pool_takes_what_is_above_the_other_pool(core: Core, submit: Submit) -> None:
    submit(6)
    declare(core.db, read_pools("x86=x86-64-v3 spot:4=x86-64-v3"))
    assert (count_builds(core, "x86"), count_builds(core, "spot")) == ((6, 6), (2, 2))
    declare(core.db, read_pools("spot:8=x86-64-v3"))
    assert count_builds(core, "spot") == (0, 0)
    with core.db.read() as connection:
        assert connection.execute(text("SELECT pool FROM scaling")).scalars().all() == ["spot"]


def test_a_pool_without_workers_counts_as_served(core: Core, jobs: Jobs, submit: Submit) -> None:
    fleet.announce(core, "a", "host", ["x86-64-v3"], 1)
    model = core.store.blobs.put(b"model").digest
    request = CompileRequest.of(targets=("cuda-sm80",))
    job = jobs.submit(model, request, wait_for_worker=False)
    reason = "waits for a worker of the pool cuda, which starts when builds wait"
    assert jobs.get(job.id).builds[0].note == reason
    (note,) = [each["note"] for each in jobs.targets() if each["name"] == "cuda-sm80"]
    assert note == f"a job for it {reason}"
    declare(core.db, ())
    with pytest.raises(TargetNotServed):
        jobs.submit(model, request, wait_for_worker=False)


@dataclass
class Autoscaler:
    """KEDA's formula for one pool: a replica a build, at once up; down to what the last
    `STABLE` looks have asked for at most.
    """

    minimum: int
    maximum: int
    seen: deque[int] = field(default_factory=lambda: deque(maxlen=STABLE))

    def replicas(self, metric: int) -> int:
        self.seen.append(min(self.maximum, max(self.minimum, ceil(metric / 1))))
        return max(self.seen)


@dataclass
class Pods:
    """The pods of one pool, each of which compiles a build in TICKS_A_BUILD."""

    core: Core
    pool: str
    capabilities: tuple[str, ...]
    autoscaler: Autoscaler
    claims: list[tuple[Claim, int]] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    def tick(self, now: int) -> None:
        count = self.autoscaler.replicas(count_builds(self.core, self.pool)[0])
        self.counts.append(count)
        for claim, until in [each for each in self.claims if each[1] <= now]:
            ending.finish(self.core, claim, Outcome(State.SUCCEEDED))
            self.claims.remove((claim, until))
        while len(self.claims) < count and (
            build_id := scheduling.next_build(self.core, self.capabilities)
        ):
            if claim := claiming.take(self.core, build_id, self.pool):
                self.claims.append((claim, now + TICKS_A_BUILD))


def test_thirty_builds_for_processors_and_twelve_for_gpus_all_end_and_pools_shrink(
    core: Core, jobs: Jobs, submit: Submit, clock: FakeClock
) -> None:
    submit(30)
    submit(12, "cuda-sm90")
    x86, cuda, _ = read_pools(POOLS)
    pods = [
        Pods(core, "x86", x86.capabilities, Autoscaler(1, 4)),
        Pods(core, "cuda", cuda.capabilities, Autoscaler(0, 4)),
    ]
    for now in range(LONGEST):
        clock.advance(1)
        for each in pods:
            each.tick(now)
    assert Counter(job.state for job in jobs.list()) == {State.SUCCEEDED: 42}
    assert [(max(each.counts), each.counts[-1]) for each in pods] == [(4, 1), (4, 0)]
    busy = [sum(count > each.autoscaler.minimum for count in each.counts) for each in pods]
    assert busy[0] <= ceil(30 / 4) * TICKS_A_BUILD + STABLE + 2
    assert busy[1] <= ceil(12 / 4) * TICKS_A_BUILD + STABLE + 2


def test_a_build_is_left_to_a_worker_that_executes_its_target(
    core: Core, submit: Submit, clock: FakeClock
) -> None:
    (build_id,) = submit(1, "aarch64")
    assert scheduling.next_build(core, ["aarch64"], {"aarch64"}) is None
    assert scheduling.next_build(core, ["aarch64"], {"riscv64"}) == build_id
    assert scheduling.next_build(core, ["aarch64"]) == build_id
    clock.advance(scheduling.PREFER_S)
    assert scheduling.next_build(core, ["aarch64"], {"aarch64"}) == build_id
