"""Answers builds from the cache without a claim: when they are submitted, where live workers report
enough for their action keys to be known, and when a worker finds them in the queue. They end as
builds do that wait for an equal one.

Everything read here is what a worker would read, from the database and the store, which trust
workers; a worker is asked wherever anything is unknown, differs or fails.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from artifacts.documents import read_document
from artifacts.errors import StoreError
from artifacts.oci import ACTION_KEY
from compiler.errors import CompileError
from relaxd.contract.action import ActionKey
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import State
from relaxd.errors import RelaxdError
from relaxd.provenance.keys import PublicKey, read_public_keys
from service.core import Core
from service.domain import Kind, Outcome
from service.identity import bundles_of
from service.usecases.builds import claiming, fleet, results, tracing
from service.usecases.store import attesting, grants, holdings, indexing
from service.usecases.store.remembering import recall
from service.usecases.tenants import sharing

FLEET_S = 1.0
"""How long is remembered which workers live."""

logger = structlog.get_logger("relaxd.answers")


@dataclass(frozen=True)
class Answer:
    """A build's result, and what equal builds have in common."""

    flight_key: str
    outcome: Outcome


@dataclass(frozen=True)
class Requester:
    """Whose builds are to be answered, of which model and request."""

    tenant: str
    shares: bool
    model: str
    request: CompileRequest


def answers(core: Core, requester: Requester, capabilities: Mapping[str, str]) -> dict[str, Answer]:
    """The results that the cache has, by target; `capabilities` are what its worker would need, by
    target. Raises DatabaseUnavailable.
    """
    if requester.request.options.dump:  # the bundle says nothing of it
        return {}
    reports = core.recent.get("reports", core.clock(), FLEET_S, lambda: _reports(core))
    results = {}
    for target, capability in capabilities.items():
        report = reports.get(capability)
        if report and (answer := _answer(core, requester, target, report)):
            results[target] = answer
    return results


def end_queued(core: Core, build_id: str, report: Mapping[str, Any]) -> bool:
    """End a queued build whose result the cache has, on the worker of that report; whether there is
    nothing left to do with it.
    """
    if (queued := claiming.find(core, build_id)) is None:
        return True
    job, build = queued
    if job.kind is not Kind.COMPILE or job.request.options.dump:
        return False
    requester = Requester(job.tenant, sharing.shares(core, job.tenant), job.model, job.request)
    answer = _answer(core, requester, build.target, report)
    if answer is None:
        return False
    with core.writing() as tx:
        fresh = tx.build(job.id, build.id)
        if fresh.state is not State.QUEUED:
            return True
        tx.end(fresh, answer.outcome, action_key=answer.flight_key)
    tracing.record_shared(core, build, answer.outcome)
    indexing.publish(core, job.id)
    logger.info("build answered", job_id=job.id, build_id=build.id, action_key=answer.flight_key)
    return True


def _reports(core: Core) -> dict[str, Mapping[str, Any]]:
    """Collect workers' reports by capability, where all that live report the same."""
    by_capability: dict[str, list[Mapping[str, Any] | None]] = {}
    for worker in fleet.live_workers(core):
        for capability in worker.capabilities:
            by_capability.setdefault(capability, []).append(worker.keys)
    return {
        capability: reports[0]
        for capability, reports in by_capability.items()
        if reports[0] and all(report == reports[0] for report in reports)
    }


def _answer(
    core: Core, requester: Requester, target: str, report: Mapping[str, Any]
) -> Answer | None:
    try:
        key = core.compiler.known_key(
            requester.model, requester.request, target, report["identity"]
        )
    except CompileError:  # a worker says why
        return None
    if key is None:
        return None
    flight_key = sharing.flight_key_of(requester.tenant, key.digest, shared=requester.shares)
    signed_by = report["signed_by"]

    def find(snapshot: Core) -> Outcome | None:
        return _known(snapshot, requester, key, flight_key, signed_by)

    def stands(outcome: Outcome | None) -> bool:
        return outcome is not None and _stands(core, requester.tenant, flight_key, outcome)

    cache_key = ("answer", requester.tenant, requester.shares, flight_key, signed_by)
    outcome = recall(core, cache_key, find, stands)
    return Answer(flight_key, outcome) if outcome else None


def _known(
    core: Core, requester: Requester, key: ActionKey, flight_key: str, signed_by: str | None
) -> Outcome | None:
    """The result, which the tenant holds from then on; None where a worker has to look."""
    try:
        digest = core.store.actions.get(flight_key)
        if digest is None:
            return None
        named = read_document(core.store.blobs, digest).annotations.get(ACTION_KEY)
        if named != key.digest or not _is_signed(core, requester.tenant, digest, signed_by):
            return None
        outcome = results.bundle_outcome(core, digest, requester.tenant, cached=True)
        grants.give(core, requester.tenant, outcome, shared=requester.shares)
    except (RelaxdError, ValueError) as error:
        logger.warning("a cached result was not read", key=key.digest, error=str(error))
        return None
    return outcome


def _stands(core: Core, tenant: str, flight_key: str, outcome: Outcome) -> bool:
    """True if the cache still has a result that was found before, and the tenant holds it: a later
    one of its name does not.
    """
    try:
        bundle = outcome.artifact.digest if outcome.artifact else ""
        there = core.store.actions.names(flight_key, bundle) and core.store.blobs.has(bundle)
        return there and holdings.is_held(core, tenant, bundle)
    except StoreError as error:
        logger.warning("a cached result was not looked up", key=flight_key, error=str(error))
        return False


def _is_signed(core: Core, tenant: str, bundle: str, signed_by: str | None) -> bool:
    """True if the bundle is attested as workers want it; whoever holds the key attests it."""
    if signed_by is None:
        return True
    keys: Sequence[PublicKey] = list(read_public_keys(signed_by.encode()).values())
    return all(attesting.is_signed(core, bundle, bundles_of(tenant), key) for key in keys)


def report(core: Core) -> dict[str, Any] | None:
    """Describe this worker, None where it lacks a tool."""
    try:
        identity = core.compiler.identity()
    except CompileError as error:
        logger.warning("builds are not answered from the cache at once", error=str(error))
        return None
    signer = core.signer()
    return {"identity": identity, "signed_by": signer.public.pem if signer else None}
