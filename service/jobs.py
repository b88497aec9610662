"""The facade over the use cases: submit, watch and cancel jobs, inspect models, list targets."""

import builtins
from collections.abc import Sequence
from typing import Any

from artifacts.store import Artifacts
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import State
from relaxd.contract.urgency import Urgency
from service.core import Core
from service.domain import Brief, Event, Job, Mark, Queue
from service.identity import DEFAULT
from service.usecases.auditing import Change
from service.usecases.builds import fleet, tracing
from service.usecases.jobs import cancelling, inspecting, overview, submitting, watching
from service.usecases.jobs.overview import Search, Snapshot
from service.usecases.store import holdings
from service.usecases.store.holdings import Unheld


class Jobs:
    """Everything the API and the command line do with jobs; safe to use from several threads.

    A job of a tenant other than `tenant` is unknown; with None, every job is known.
    """

    def __init__(
        self, core: Core, tenant: str | None = DEFAULT, unheld: Unheld | None = None
    ) -> None:
        self._core = core
        self._tenant = tenant
        self._unheld = unheld

    def of(self, tenant: str | None) -> "Jobs":
        """The same for another tenant."""
        return Jobs(self._core, tenant)

    def with_blobs(self, unheld: Unheld) -> "Jobs":
        """The same for a submission that brings blobs, which the tenant holds with the new job."""
        return Jobs(self._core, self._tenant, unheld)

    @property
    def store(self) -> Artifacts:
        """Blobs and the action cache, as far as the tenant may see them."""
        return holdings.view(self._core, self._tenant) if self._tenant else self._core.store

    def submit(
        self,
        model_digest: str,
        request: CompileRequest,
        idempotency_key: str | None = None,
        model_name: str | None = None,
        wait_for_worker: bool = True,
        change: Change | None = None,
        project: str = "",
        urgency: Urgency = Urgency(),
    ) -> Job:
        """A new job with one queued build per target, or the job that an equal submission with the
        same key made.

        Raises UnknownModel, UnknownBlob (samples), IdempotencyConflict, and
        compiler.errors.UnknownTarget; without `wait_for_worker` also NoWorker and TargetNotServed
        where a build would wait. `change` is the entry that the audit log gets with a new job;
        `project` is whom its usage is added to; `urgency` orders its builds among the tenant's.
        """
        with tracing.submission(self._core) as span:
            job = submitting.submit(
                self._core,
                model_digest,
                request,
                idempotency_key=idempotency_key,
                model_name=model_name,
                tenant=self._tenant or DEFAULT,
                wait_for_worker=wait_for_worker,
                change=change,
                project=project,
                urgency=urgency,
                unheld=self._unheld,
            )
            span.note({tracing.JOB: job.id})
            return job

    def get(self, job_id: str) -> Job:
        """The job as it stands; raises UnknownJob."""
        return watching.get(self._core, job_id, self._tenant)

    def list(self, limit: int = 50, state: State | None = None) -> list[Job]:
        """The newest compile jobs first, of one state if given."""
        return watching.newest(self._core, limit, state, self._tenant)

    def overview(self, search: Search) -> builtins.list[Brief]:
        """The newest compile jobs in brief; raises UnknownJob for `search.before`."""
        return overview.newest(self._core, search, self._tenant or DEFAULT)

    def queue(self) -> Queue:
        """The builds that run and wait."""
        return overview.queue(self._core, self._tenant or DEFAULT)

    def read_changes(self, last: Snapshot | None) -> tuple[Snapshot, builtins.list[Brief]]:
        """A look at the jobs, and those that have changed since the last one; without one, none."""
        return overview.read_changes(self._core, self._tenant or DEFAULT, last)

    def cancel(self, job_id: str) -> Job:
        """Ask every unfinished build to end; queued ones end at once, running ones when their
        worker notices (about a second).

        A job that has ended stays as it is; raises UnknownJob.
        """
        return cancelling.cancel(self._core, job_id, self._tenant)

    def events(self, job_id: str, after: int = 0, limit: int | None = None) -> builtins.list[Event]:
        """Events with `seq` greater than `after`, in order, `limit` at most; raises UnknownJob."""
        return watching.history(self._core, job_id, after, limit, self._tenant)

    def marks(self, job_ids: Sequence[str]) -> dict[str, Mark]:
        """How far each of the jobs is, whoever's they are; jobs that do not exist are left out."""
        return watching.marks(self._core, job_ids)

    def wait(self, job_id: str, seconds: float) -> Job:
        """The job once it has ended, or as it stands after `seconds`; raises UnknownJob."""
        return watching.wait(self._core, job_id, seconds, self._tenant)

    def inspect(self, model_digest: str, request: CompileRequest) -> Job:
        """A job that has a worker inspect the model, or find an earlier report; raises
        UnknownModel.
        """
        with tracing.submission(self._core) as span:
            job = inspecting.begin(self._core, model_digest, request, self._tenant or DEFAULT)
            span.note({tracing.JOB: job.id})
            return job

    def report(self, job: Job, seconds: float) -> dict[str, Any]:
        """The report of an inspection that was waited for so long; raises InspectionFailed,
        NotFinished.
        """
        return inspecting.report(job, seconds)

    def targets(self) -> builtins.list[dict[str, Any]]:
        """Every known target in the registry's order: name, arch, isa, status, and `workers`, the
        live workers that compile it.
        """
        return fleet.targets(self._core)
