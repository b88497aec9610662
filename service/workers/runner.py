"""Runs one claimed build from the model's blob to the published bundle, and records its end."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import structlog

from artifacts.dumps import publish_dump
from artifacts.errors import StoreFull
from artifacts.files import storage_errors
from artifacts.models import files_of_model
from artifacts.oci import REPRODUCER, bundle_annotations, publish_bundle, publish_files
from artifacts.store import BlobStore
from compiler.errors import CompileError
from compiler.isolation.messages import CompileJob, InspectJob, StageStarted
from compiler.isolation.starting import Limits
from compiler.isolation.usage import StageUsage
from relaxd.contract.bundle import profile
from relaxd.contract.failures import Failure
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import Stage, State
from relaxd.errors import RelaxdError
from service.core import Core
from service.domain import Artifact, Claim, Kind, Outcome
from service.errors import DatabaseUnavailable, QuotaExceeded, StaleClaim
from service.identity import bundles_of
from service.usecases.builds import ending, results
from service.usecases.store import attesting, holdings, reserving
from service.usecases.tenants import usage
from service.workers.build_trace import BuildTrace
from service.workers.heartbeat import Pulse, Stop
from service.workers.patience import Patience, with_database
from service.workers.scratch import Workshop

WITHOUT_STORE = "without_store"
"""The ending of a run that gave its build back because the store was full."""

Observe = Callable[[Claim, str, float], None]
Account = Callable[[Claim, Sequence[StageUsage], int], None]

logger = structlog.get_logger("relaxd.worker")


class Runner:
    """Runs builds, each in a child process; `observe` gets the claim, its outcome and its
    seconds, `account` what its stages used and the bytes of a new bundle.
    """

    def __init__(
        self,
        core: Core,
        workshop: Workshop,
        shutdown: threading.Event,
        observe: Observe,
        account: Account = lambda claim, usage, stored_bytes: None,
    ) -> None:
        self._core = core
        self._signer = core.signer()
        self._workshop = workshop
        self._shutdown = shutdown
        self._observe = observe
        self._account = account

    def run(self, claim: Claim) -> str:
        """See the build to its end or give it back; its ending in a word. Raises
        DatabaseUnavailable where neither could be written down.
        """
        began, trace = time.monotonic(), BuildTrace(self._core, claim)
        names = {"job_id": claim.job_id, "build_id": claim.build_id, "target": claim.target}
        with trace, structlog.contextvars.bound_contextvars(**names, **trace.named):
            logger.info("build started", fence=claim.fence, action_key=claim.action_key)
            pulse = Pulse(self._core, claim, self._shutdown, trace)
            try:
                with pulse:
                    ended = self._attempt(claim, pulse)
            except StaleClaim as error:
                ended = "stale"
                logger.warning("build abandoned", reason=str(error))
            seconds = time.monotonic() - began
            logger.info("build ended", ending=ended, seconds=round(seconds, 3))
            trace.note(ended)
            self._observe(claim, ended, seconds)
            self._record_usage(claim, pulse)
            return ended

    def _record_usage(self, claim: Claim, pulse: Pulse) -> None:
        """Add up what the attempt used, however it ended; a database that is away loses it."""
        self._account(claim, pulse.usage, pulse.stored_bytes)
        try:
            usage.record(self._core, claim, pulse.usage, pulse.stored_bytes)
        except DatabaseUnavailable as error:
            logger.warning("usage was not recorded", error=str(error))

    def _attempt(self, claim: Claim, pulse: Pulse) -> str:
        """The outcome of the attempt, in a word, once it is stored; raises StaleClaim."""
        try:
            patience = Patience(pulse, self._core.settings.store_patience_s)
            known = patience.with_store(lambda: self._known(claim))
            outcome = known or self._work(claim, pulse, patience)
        except StaleClaim:
            raise
        except CompileError as error:
            return self._failed(claim, pulse, error.failure)
        except QuotaExceeded as error:
            failure = replace(_failure_of(error), retryable=False)
            return self._failed(claim, pulse, failure)
        except StoreFull as error:
            return self._postponed(claim, pulse, error)
        except DatabaseUnavailable as error:
            return self._release(claim, pulse, _failure_of(error), attempted=False)
        except Exception as error:
            # Ours or the machine's fault, not the model's: another attempt, perhaps elsewhere, may
            # do.
            return self._release(claim, pulse, _unexpected(error), attempted=True)
        return self._end(claim, pulse, outcome)

    def _known(self, claim: Claim) -> Outcome | None:
        """The result that the cache has, signed."""
        known = results.known_outcome(self._core, claim)
        if known and known.artifact:
            attesting.attest_known(self._core, claim, known.artifact.digest, self._signer)
        return known

    def _failed(self, claim: Claim, pulse: Pulse, failure: Failure) -> str:
        match pulse.stop:
            case Stop.LOST:
                raise StaleClaim(f"the lease of build {claim.build_id} could not be renewed")
            case Stop.CANCELLED:
                return self._end(claim, pulse, ending.CANCELLED)
            case Stop.SHUTDOWN:
                shutdown = Failure(
                    code="worker.shutdown",
                    stage=failure.stage,
                    message="the worker shut down",
                    retryable=True,
                )
                return self._release(claim, pulse, shutdown, attempted=False)
        if failure.retryable:
            return self._release(claim, pulse, failure, attempted=True)
        state = State.TIMED_OUT if failure.code == "compile.timeout" else State.FAILED
        return self._end(claim, pulse, Outcome(state, error=failure))

    def _end(self, claim: Claim, pulse: Pulse, outcome: Outcome) -> str:
        if outcome.error:
            pulse.trace.fail(outcome.error)
        try:
            pulse.flush()
            with_database(pulse, lambda: ending.finish(self._core, claim, outcome))
        except (StaleClaim, DatabaseUnavailable):
            raise
        except Exception as error:
            # Without an end, the build would be taken for that of a worker that fell silent.
            return self._release(claim, pulse, _unexpected(error), attempted=True)
        return "cached" if outcome.cached else outcome.state.value

    def _postponed(self, claim: Claim, pulse: Pulse, error: StoreFull) -> str:
        """Give back a build that a full store has kept waiting: it counts as not attempted."""
        if pulse.stop is not None:
            return self._failed(claim, pulse, _failure_of(error))
        self._release(claim, pulse, _failure_of(error), attempted=False)
        return WITHOUT_STORE

    def _release(self, claim: Claim, pulse: Pulse, failure: Failure, *, attempted: bool) -> str:
        pulse.trace.fail(failure)
        pulse.flush()
        with_database(
            pulse, lambda: ending.release(self._core, claim, failure, attempted=attempted)
        )
        return "released"

    def _work(self, claim: Claim, pulse: Pulse, patience: Patience) -> Outcome:
        if claim.kind is not Kind.INSPECT:
            reserving.require_room(self._core, claim.tenant)
        with self._workshop.bench() as bench:
            model = self._fetch_model(claim, bench / "model", patience)
            if claim.kind is Kind.INSPECT:
                return self._inspect(claim, pulse, model)
            return self._compile(claim, pulse, bench, patience)

    def _inspect(self, claim: Claim, pulse: Pulse, model: Path) -> Outcome:
        job = InspectJob(str(model), claim.request.to_json())
        report = self._run_child(job, claim, pulse)
        assert isinstance(report, dict)
        return Outcome(State.SUCCEEDED, report=report)

    def _compile(self, claim: Claim, pulse: Pulse, bench: Path, patience: Patience) -> Outcome:
        samples = claim.request.samples and str(
            self._fetch(claim.request.samples, bench / "samples.npz", patience)
        )
        bundle, dump, reproducer = (bench / name for name in ("bundle", "dump", "reproducer"))
        # There may be a bundle without the dump that this request asks for: the bundle stays.
        earlier = self._core.store.actions.get(claim.flight_key)
        request = _unmeasured(claim.request) if earlier else claim.request
        job = CompileJob(
            model=str(bench / "model"),
            request=request.to_json(),
            target=claim.target,
            output=str(bundle),
            model_name=claim.model_name or "model",
            samples=samples,
            model_digest=claim.model,
            dump=str(dump) if claim.request.options.dump else None,
            reproducer=str(reproducer),
            verify_again=self._core.settings.verify_again,
        )
        try:
            self._run_child(job, claim, pulse)
        except CompileError as error:
            if reproducer.is_dir() and pulse.stop is None:
                raise patience.with_store(
                    partial(self._with_reproducer, claim, error, reproducer)
                ) from error
            raise
        pulse.hear(StageStarted(Stage.PUBLISH))

        def publish() -> Outcome:
            if earlier:
                attesting.attest_known(self._core, claim, earlier, self._signer)
            digest = earlier or self._publish(claim, bundle)
            if job.dump:
                publish_dump(self._core.store, dump, digest, bundles_of(claim.tenant))
            cached = earlier is not None
            return results.bundle_outcome(self._core, digest, claim.tenant, cached=cached)

        outcome = patience.with_store(publish)
        if outcome.artifact and not outcome.cached:
            pulse.stored_bytes = outcome.artifact.size
        return outcome

    def _fetch(self, digest: str, path: Path, patience: Patience) -> Path:
        return patience.with_store(lambda: _fetch(self._core.store.blobs, digest, path))

    def _fetch_model(self, claim: Claim, path: Path, patience: Patience) -> Path:
        """Write the model's file, or a folder of its files, each of which the tenant holds."""
        blobs = self._core.store.blobs
        files = patience.with_store(lambda: files_of_model(blobs, claim.model))
        if files is None:
            return self._fetch(claim.model, path, patience)
        own = holdings.view(self._core, claim.tenant).blobs
        for name, digest in files.items():
            with storage_errors("cannot make a folder"):
                (path / name).parent.mkdir(parents=True, exist_ok=True)
            patience.with_store(partial(_fetch, own, digest, path / name))
        return path

    def _with_reproducer(self, claim: Claim, error: CompileError, folder: Path) -> CompileError:
        """The error with the published reproducer in place of its path on this machine."""
        published = publish_files(self._core.store.blobs, folder, REPRODUCER, {})
        ref = f"{bundles_of(claim.tenant)}@{published.digest}"
        artifact = Artifact(published.digest, ref, published.size).to_json()
        details = {**error.failure.details, "reproducer": artifact}
        return CompileError.from_failure(replace(error.failure, details=details))

    def _publish(self, claim: Claim, bundle: Path) -> str:
        measured = _taken_out(bundle)
        published = publish_bundle(
            self._core.store.blobs,
            bundle,
            bundle_annotations(claim.action_key, claim.target),
        )
        # Before the action cache names it: a bundle that others can find has its attestations.
        attesting.attest(self._core, claim, published.digest, self._signer)
        if measured is not None:
            attesting.attach_profile(self._core, claim, published.digest, measured)
        # A worker that lost this build earlier may have published first: its bundle is as good, and
        # then the only one.
        return self._core.store.actions.put(claim.flight_key, published.digest)

    def _run_child(self, job: CompileJob | InspectJob, claim: Claim, pulse: Pulse) -> object:
        settings = self._core.settings
        limits = Limits(
            seconds=settings.job_timeout_s,
            memory_bytes=settings.memory_mb << 20,
            processes=settings.max_processes,
            disk_bytes=settings.disk_mb << 20,
            unsandboxed_torchscript=settings.allow_unsandboxed_torchscript,
        )
        return self._core.compiler.run(
            job,
            on_event=pulse.hear,
            cancelled=lambda: pulse.stop is not None,
            limits=limits,
            kernels=settings.kernels_of(claim.tenant),
            on_usage=pulse.usage.append,
        )


def _taken_out(bundle: Path) -> bytes | None:
    """The build's profile, which lies beside the bundle from now on, or None; what is no plain file
    stays, for the bundle to be refused.
    """
    inside, beside = bundle / profile.FILENAME, bundle.with_name(profile.FILENAME)
    if _is_plain(inside):
        inside.rename(beside)
    if not _is_plain(beside) or beside.stat().st_size > profile.MAX_BYTES:
        return None
    return beside.read_bytes()


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _unexpected(error: Exception) -> Failure:
    """The failure of an attempt that broke down; logs the error."""
    logger.error("attempt failed", exc_info=error)
    return _failure_of(error)


def _unmeasured(request: CompileRequest) -> CompileRequest:
    """The request, for a build of which only the dump is kept."""
    return replace(request, options=replace(request.options, verify=False, profile=False))


def _fetch(blobs: BlobStore, digest: str, path: Path) -> Path:
    """Write a blob to a file, verified; raises BlobNotFound, BlobCorrupt, StorageFailed."""
    with storage_errors(f"cannot write {path.name}"), path.open("wb") as file:
        for chunk in blobs.open(digest):
            file.write(chunk)
    return path


def _failure_of(error: Exception) -> Failure:
    return Failure(
        code=error.code if isinstance(error, RelaxdError) else "worker.error",
        stage=Stage.PUBLISH,
        message=str(error),
        hint=error.hint if isinstance(error, RelaxdError) else "see the worker's log",
        retryable=True,
    )
