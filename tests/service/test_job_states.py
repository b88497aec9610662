"""Any order of submissions, claims, ends, losses and cancellations keeps the promises about states,
and every job ends.
"""

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from artifacts import open_store
from artifacts.oci import publish_bundle
from compiler.isolation.messages import CompileJob
from relaxd.contract.failures import Failure
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import TRANSITIONS, State
from relaxd.contract.urgency import Urgency
from service.core import Core
from service.db.engine import Database
from service.domain import Artifact, Claim, EventType, Outcome, job_state
from service.errors import StaleClaim
from service.jobs import Jobs
from service.settings import Settings
from service.usecases.builds import claiming, ending, reporting, sweeping
from tests.service.fakes import FakeClock, FakeCompiler, FakeDoorbell, write_bundle
from tests.service.tables import copy_sqlite

FAILURE = Failure(code="import.unsupported_op", stage="import", message="no")
UNSUCCESSFUL = (
    Outcome(State.FAILED, error=FAILURE),
    Outcome(State.TIMED_OUT, error=FAILURE),
    ending.CANCELLED,
)
TARGETS = ("native", "x86-64-v2")
PICK = st.integers(0, 1000)


class JobStates(RuleBasedStateMachine):
    """Workers here forget, repeat themselves and speak too late; doorbells ring for anything at any
    time.
    """

    @initialize()
    def start(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        path = Path(self.folder.name)
        self.clock, self.doorbell = FakeClock(), FakeDoorbell()
        config = Settings(data_dir=path, max_attempts=2, lease_s=30, ring_after_s=1)
        self.core = Core(
            config,
            Database(copy_sqlite(path / "jobs.sqlite")),
            open_store(config.store),
            FakeCompiler(),
            self.doorbell,
            self.clock,
        )
        self.jobs = Jobs(self.core)
        self.success = Outcome(State.SUCCEEDED, artifact=self.publish(path / "bundle"))
        self.models = [self.core.store.blobs.put(name).digest for name in (b"one", b"two")]
        self.submitted: list[str] = []
        self.claims: list[Claim] = []
        self.seen = {}

    def publish(self, folder: Path) -> Artifact:
        model = folder.with_name("model")
        model.touch()
        job = CompileJob(str(model), CompileRequest().to_json(), "native", str(folder), "model")
        write_bundle(job, folder)
        result = publish_bundle(self.core.store.blobs, folder, {})
        return Artifact(result.digest, result.ref, result.size)

    def builds(self):
        return [build for job in self.jobs.list(1000) for build in job.builds]

    @rule(
        model=st.integers(0, 1),
        names=st.lists(st.sampled_from(TARGETS), min_size=1, unique=True),
        priority=st.integers(-2, 2),
        deadline=st.sampled_from([None, "10s", "1m"]),
    )
    def submit(self, model, names, priority, deadline):
        request, urgency = CompileRequest(targets=tuple(names)), Urgency.of(priority, deadline)
        self.submitted.append(self.jobs.submit(self.models[model], request, urgency=urgency).id)

    @rule(pick=PICK)
    def answer(self, pick):
        if builds := self.builds():
            claim = claiming.take(self.core, builds[pick % len(builds)].id, "worker")
            self.claims += [claim] if claim else []

    def speak(self, pick, say):
        """Say something under some claim: it is heard exactly if the claim is still held."""
        if not self.claims:
            return
        claim = self.claims[pick % len(self.claims)]
        (build,) = [build for build in self.builds() if build.id == claim.build_id]
        if build.state is State.RUNNING and build.fence == claim.fence:
            say(claim)
        else:
            with pytest.raises(StaleClaim):
                say(claim)

    @rule(pick=PICK, outcome=st.sampled_from((None, *UNSUCCESSFUL)))
    def finish(self, pick, outcome):
        """None is success."""
        outcome = outcome or self.success
        self.speak(pick, lambda claim: ending.finish(self.core, claim, outcome))

    @rule(pick=PICK, attempted=st.booleans())
    def release(self, pick, attempted):
        self.speak(
            pick, lambda claim: ending.release(self.core, claim, FAILURE, attempted=attempted)
        )

    @rule(pick=PICK)
    def beat(self, pick):
        self.speak(pick, lambda claim: reporting.beat(self.core, claim))

    @rule(pick=PICK)
    def progress(self, pick):
        self.speak(
            pick,
            lambda claim: reporting.progress(
                self.core, claim, [(EventType.BUILD_LOG, {"line": "x"})]
            ),
        )

    @rule(pick=PICK)
    def cancel(self, pick):
        if self.submitted:
            self.jobs.cancel(self.submitted[pick % len(self.submitted)])

    @rule(seconds=st.sampled_from([1, 20, 31]))
    def sweep(self, seconds):
        self.clock.advance(seconds)
        sweeping.reclaim(self.core)
        sweeping.ring_again(self.core, TARGETS, 2)
        sweeping.end_late(self.core)

    @invariant()
    def only_a_deadline_that_has_passed_ends_a_build(self):
        for build in self.builds():
            if build.error and build.error.code == "build.deadline":
                assert build.deadline <= build.finished_at

    @invariant()
    def builds_keep_to_the_table(self):
        for build in self.builds():
            before = self.seen.get(build.id, build)
            if before.state.terminal:
                assert build == before
            # One step of this test may be two of the build's: back into the queue and to another's
            # end.
            reachable = (
                {before.state}
                | TRANSITIONS[before.state]
                | {last for state in TRANSITIONS[before.state] for last in TRANSITIONS[state]}
            )
            assert build.state in reachable
            assert build.fence >= before.fence
            assert build.attempts <= 2
            self.seen[build.id] = build

    @invariant()
    def jobs_follow_their_builds(self):
        for job in self.jobs.list(1000):
            assert job.state is job_state([build.state for build in job.builds])
            assert (job.finished_at is not None) is job.state.terminal

    @invariant()
    def one_build_of_a_key_runs(self):
        running = [build.action_key for build in self.builds() if build.state is State.RUNNING]
        assert len(running) == len(set(running))

    @invariant()
    def events_are_numbered_and_end_with_the_job(self):
        for job in self.jobs.list(1000):
            events = self.jobs.events(job.id)
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
            ends = [event.seq for event in events if event.type is EventType.JOB_FINISHED]
            assert ends == ([len(events)] if job.state.terminal else [])
            finished = [event.target for event in events if event.type is EventType.BUILD_FINISHED]
            assert sorted(finished) == sorted(
                build.target for build in job.builds if build.state.terminal
            )

    def teardown(self):
        """Once workers behave, every job ends."""
        if not hasattr(self, "core"):
            return
        for _ in range(3 * len(self.builds()) + 3):
            self.clock.advance(31)
            sweeping.reclaim(self.core)
            sweeping.end_late(self.core)
            self.doorbell.rings.clear()
            sweeping.ring_again(self.core, TARGETS, 1)
            for build_id in self.doorbell.rings:
                if claim := claiming.take(self.core, build_id, "good worker"):
                    ending.finish(self.core, claim, self.success)
        assert all(self.jobs.get(job_id).state.terminal for job_id in self.submitted)
        self.core.db.close()
        self.folder.cleanup()


TestJobStates = JobStates.TestCase
TestJobStates.settings = settings(
    max_examples=20, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
