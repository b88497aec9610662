"""Runs a new library against a reference at several points of its dims, and says what it found in
numerics.json.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from compiler.errors import VerifyError
from compiler.ir.draws import Draw
from compiler.isolation.step import Outcome, Record, run_task
from compiler.targets import TargetStatus
from compiler.verify import npz
from compiler.verify.inputs import LeftOut, Signature, Trial, Trials
from compiler.verify.judged import SIDES, Judged, Verdict, judge_all, summary, verdict_of
from compiler.verify.reach import reached, unbounded, unproven
from compiler.verify.reference.onnx import ONNX
from compiler.verify.spread import (
    JOSTLES,
    TIMES,
    jostled,
    same_outputs,
    spreads,
    undecided_integers,
)
from compiler.verify.unrounded import Wording, changes, check_error, check_likeness
from relaxd.contract.options import CompileOptions

_PATIENCE = 3.0
"""How many times its seconds a reference may take that answers trials once more."""
_LATE = "the references that tell how far equal roundings come apart did not end in time"


@dataclass(frozen=True)
class Budget:
    """Seconds for both sides together, shared evenly; bytes of one side's private memory, and of
    one point's inputs.
    """

    seconds: float = 60.0
    memory_bytes: int = 8 << 30
    input_bytes: int = 64 << 20


@dataclass(frozen=True)
class Reference:
    """The model the reference runs, the scalars for inputs that the library has fixed, the engines
    to ask, in order, and the numbers that inputs by these names are fed.
    """

    model: Path
    consts: dict[str, Any]
    engines: tuple[str, ...] = ONNX
    draws: Mapping[str, Draw] = field(default_factory=dict)


@dataclass(frozen=True)
class Rounded:
    """What the library and its reference round: the model without that rounding, and the reference
    with its numbers nudged before they are rounded, where roundings depend on them.

    wording: how reports speak of it. pointwise: whether a point's outputs may come apart by what
    they are moved at that point alone, as nudges move every number that a library may round
    otherwise.
    """

    original: Reference
    wording: Wording
    nudged: tuple[Reference, ...] = ()
    pointwise: bool = False


@dataclass(frozen=True)
class Runner:
    """What runs the library: the task's module, what its spec has beside the bundle and the points,
    and the status a pass gives.

    patience: after how many times its seconds it is killed, more than 1 where they are of processor
    time. slow: it is so much slower than what the library is for that a library of which it
    finishes no point is only compiled; else that is a failure.
    """

    module: str = "compiler.verify.run.native"
    spec: tuple[tuple[str, str], ...] = ()
    status: TargetStatus = TargetStatus.EXECUTED
    patience: float = 1.0
    slow: bool = False


class Mismatch(VerifyError):
    """Outputs differ from the reference's; trial: the first where they do; departing: the names of
    those that differ there; got, want: all outputs there.
    """

    def __init__(
        self, trial: Trial, departing: tuple[str, ...], message: str, **fields: Any
    ) -> None:
        super().__init__(message, **fields)
        self.trial = trial
        self.departing = departing
        self.got, self.want = (npz.read(trial.outputs(side)) for side in SIDES)


class _Unable(Exception):
    """The library turns out not to run on this machine; the text says why."""


NATIVE = Runner()
ON_SOFTWARE = Runner(status=TargetStatus.EMULATED)
"""For a device that is this machine's processor under another name."""


def not_run(reason: str, status: TargetStatus, left_out: Sequence[LeftOut] = ()) -> Record:
    """The report of a verification that did not take place.

    status: UNVERIFIED if the request wanted none, COMPILED_ONLY if this machine cannot run the
    library.
    """
    return {
        "verdict": Verdict.NOT_RUN.value,
        "status": status.value,
        "reason": reason,
        "left_out": [item.to_json() for item in left_out],
    }


def verify(
    bundle: Path,
    reference: Reference,
    signature: Signature,
    trials: Trials,
    options: CompileOptions,
    folder: Path,
    budget: Budget,
    runner: Runner = NATIVE,
    rounded: Sequence[Rounded] = (),
) -> Record:
    """The report; raises VerifyError when the library fails, crashes or differs, and when no point
    could be compared or no comparison proves anything. `folder` is scratch space.

    rounded: what the library and the reference round of weights, operands and caches: the report
    then states what each changes, and more than the options allow is an error too.
    """
    left_out = list(trials.left_out)
    engine, answered, refused = _ask_reference(reference, trials.chosen, folder, budget)
    left_out += refused
    if not answered:
        first = left_out[0].reason if left_out else "there is no point to try"
        raise _nothing_ran(f"the reference answered at no point: {first}", left_out)
    try:
        ran, unfinished = _run_library(bundle, answered, folder, budget, runner)
    except _Unable as error:
        return not_run(str(error), TargetStatus.COMPILED_ONLY)
    left_out += unfinished
    if not ran:
        reason = f"the library finished no point: {unfinished[0].reason}"
        if runner.slow:
            return not_run(reason, TargetStatus.COMPILED_ONLY, left_out)
        raise _nothing_ran(reason, left_out)
    judged, equals = judge_all(ran, signature, options), list[str]()
    if any(one.nudged for one in rounded) and any(item.difference.problem for item in judged):
        equals, known = _nudged(ran, rounded, folder, budget)
        left_out += [LeftOut(trial.point, _LATE) for trial in ran if trial.index not in known]
        ran = [trial for trial in ran if trial.index in known]
        if not ran:
            raise _nothing_ran(_LATE, left_out)
        judged = _with_spread(ran, signature, options, rounded, equals)
    if any(one.nudged for one in rounded) and any(item.difference.problem for item in judged):

        def again(trials: Sequence[Trial], side: str) -> list[Trial]:
            return _run_library(bundle, trials, folder, budget, runner, side)[0] if trials else []

        judged = _jostled(judged, again, signature, options, equals)
    report = {
        **_report(engine, judged, ran, left_out, options),
        "verified_up_to": reached(ran),
        "warnings": [*unbounded(signature, ran), *unproven(judged)],
        "status": runner.status.value,
    }
    if report["verdict"] == Verdict.FAILED:
        raise _mismatch(judged, report)
    if report["verdict"] == Verdict.INCONCLUSIVE:
        raise _nothing_proven(judged, report)
    for one in rounded:
        _state_changes(report, one, ran, signature, options, equals, folder, budget)
    return report


def _state_changes(
    report: Record,
    rounded: Rounded,
    ran: Sequence[Trial],
    signature: Signature,
    options: CompileOptions,
    equals: Sequence[str],
    folder: Path,
    budget: Budget,
) -> None:
    """Puts into the report what a rounding changes; raises VerifyError for more than is allowed, or
    more than `equals`, sides of equal roundings, explain.
    """
    wording = rounded.wording
    side = wording.side
    engine, answered, refused = _ask_reference(rounded.original, ran, folder, budget, side)
    if not answered:
        raise _nothing_ran(
            f"the model without rounding answered at no point: {refused[0].reason}", refused
        )
    found = changes(answered, signature, options, wording)
    report[wording.part] = {"reference": engine, **found}
    check_error(report, options, wording)
    if equals:
        sides = ("reference", *equals)
        check_likeness(answered, signature, sides, report, options, wording)


def _nudged(
    ran: Sequence[Trial], rounded: Sequence[Rounded], folder: Path, budget: Budget
) -> tuple[list[str], set[int]]:
    """The sides of the nudged references, and the indices of the trials that all of them answer."""
    # The reference may have answered these just in time, and the machine may be busier by now.
    longer = replace(budget, seconds=_PATIENCE * budget.seconds)
    sides, known = list[str](), {trial.index for trial in ran}
    for number, nudged in enumerate(nudged for one in rounded for nudged in one.nudged):
        sides.append(f"nudged{number}")
        _, answered, _ = _ask_reference(nudged, ran, folder, longer, sides[-1])
        known &= {trial.index for trial in answered}
    return sides, known


def _with_spread(
    ran: Sequence[Trial],
    signature: Signature,
    options: CompileOptions,
    rounded: Sequence[Rounded],
    sides: Sequence[str],
) -> list[Judged]:
    """Judged with what equal roundings come apart by, where the usual tolerance is too little."""
    judged = []
    alone = any(one.pointwise for one in rounded)
    for group in [[trial] for trial in ran] if alone else [ran]:
        found = spreads(group, signature, sides)
        slack = {name: TIMES * apart for name, apart in found.items()}
        judged += judge_all(group, signature, options, slack)
    return list(map(undecided_integers, judged))


def _jostled(
    judged: Sequence[Judged],
    run: Callable[[Sequence[Trial], str], list[Trial]],
    signature: Signature,
    options: CompileOptions,
    equals: Sequence[str],
) -> list[Judged]:
    """The same, but that trials which still depart are judged anew by how far the library's own
    outputs move where its inputs do, by less than sums differ. The nudged references are two
    samples, and miss a number that hangs on one rounding of the library's.

    run: runs the library on trials, and gives those that it finished; its outputs have a side.
    """
    departing = {item.trial.index: item.trial for item in judged if item.difference.problem}
    again = run(list(departing.values()), "again")
    sides: dict[int, list[str]] = {
        trial.index: [] for trial in again if same_outputs(trial, "again", "library")
    }
    for number in range(JOSTLES):
        moved = [jostled(trial, number) for trial in again if trial.index in sides]
        side = f"jostled{number}"
        for trial in run([trial for trial in moved if trial is not None], side):
            sides[trial.index].append(side)
    anew = list[Judged]()
    for index, names in sides.items():
        trial = departing[index]
        found = spreads([trial], signature, equals)
        own = spreads([trial], signature, names, "library")
        slack = {name: TIMES * max(apart, own[name]) for name, apart in found.items()}
        anew += map(undecided_integers, judge_all([trial], signature, options, slack))
    others = [item for item in judged if item.trial.index not in sides]
    return sorted([*others, *anew], key=lambda item: item.trial.index)


def _ask_reference(
    reference: Reference,
    trials: Sequence[Trial],
    folder: Path,
    budget: Budget,
    side: str = "reference",
) -> tuple[str, list[Trial], list[LeftOut]]:
    """The first engine that answers at any point: its name, the trials it answered, and the others
    with its reason. `side` names the files of its outputs.
    """
    first_refusal: list[LeftOut] = []
    deadline = time.monotonic() + budget.seconds / 2
    for name in reference.engines:
        seconds = max(deadline - time.monotonic(), 1.0)
        spec = {
            "engine": name,
            "model": str(reference.model),
            "consts": reference.consts,
            "draws": {input: draw.to_json() for input, draw in reference.draws.items()},
            "seconds": seconds,
            "points": [trial.to_spec(side) for trial in trials],
        }
        outcome = run_task(
            "compiler.verify.reference.onnx",
            spec,
            folder / f"{side}.{name}.jsonl",
            seconds=seconds,
            memory_bytes=budget.memory_bytes,
        )
        answered, left_out = _sorted_out(trials, outcome, "refused", f"{name} refused")
        if answered:
            return str(outcome.records[0]["engine"]), answered, left_out
        first_refusal = first_refusal or left_out
    return "", [], first_refusal


def _run_library(
    bundle: Path,
    trials: Sequence[Trial],
    folder: Path,
    budget: Budget,
    runner: Runner,
    side: str = "library",
) -> tuple[list[Trial], list[LeftOut]]:
    """The trials that the library finished, and those that the budget left out; raises _Unable
    where the task says so, VerifyError for any other end. `side` names the files of its outputs.
    """
    points = [trial.to_spec(side) for trial in trials]
    seconds = budget.seconds / 2
    spec = {**dict(runner.spec), "bundle": str(bundle), "seconds": seconds, "points": points}
    limit = seconds * runner.patience
    outcome = run_task(
        runner.module,
        spec,
        folder / f"{side}.jsonl",
        seconds=limit,
        memory_bytes=budget.memory_bytes,
    )
    if unable := [record["unable"] for record in outcome.records if "unable" in record]:
        raise _Unable(unable[0])
    ran, unfinished = _sorted_out(trials, outcome, "failed", "the memory budget ran out")
    for record in outcome.records:
        if "failed" in record and not _out_of_memory(record["failed"]):
            point = trials[[trial.index for trial in trials].index(record["index"])].point
            raise VerifyError(
                f"the library failed at {_where(point.dims)}: {record['failed']}",
                reason="run_failed",
                point=point.to_json(),
            )
    if not outcome.ended and "time budget" not in (outcome.reason or ""):
        raise VerifyError(
            f"the library's process {outcome.reason}",
            reason="crashed",
            point=unfinished[0].point.to_json() if unfinished else None,
            output=outcome.output,
        )
    return ran, unfinished


def _out_of_memory(message: str) -> bool:
    return any(
        sign in message
        for sign in ("bad_alloc", "MemoryError", "Unable to allocate", "out of memory")
    )


def _sorted_out(
    trials: Sequence[Trial], outcome: Outcome, key: str, refusal: str
) -> tuple[list[Trial], list[LeftOut]]:
    """Trials that ended well, and the others with the record's reason or that of the task's end."""
    well, others = [], []
    records = {record["index"]: record for record in outcome.records if "index" in record}
    for trial in trials:
        match records.get(trial.index):
            case None:
                others.append(LeftOut(trial.point, outcome.reason or "it was not reached"))
            case {"skipped": reason}:
                others.append(LeftOut(trial.point, reason))
            case record if key in record:
                others.append(LeftOut(trial.point, f"{refusal}: {record[key]}"))
            case _:
                well.append(trial)
    return well, others


def _report(
    engine: str,
    judged: Sequence[Judged],
    ran: Sequence[Trial],
    left_out: Sequence[LeftOut],
    options: CompileOptions,
) -> Record:
    names = dict.fromkeys(item.output.name for item in judged)
    outputs = [summary([item for item in judged if item.output.name == name]) for name in names]
    return {
        "verdict": verdict_of(judged).value,
        "reference": engine,
        "seed": options.seed,
        "outputs": outputs,
        "points": [trial.point.to_json() for trial in ran],
        "left_out": [item.to_json() for item in left_out],
    }


def _mismatch(judged: Sequence[Judged], report: Record) -> Mismatch:
    item = next(item for item in judged if item.difference.problem)
    departing = [
        other.output.name
        for other in judged
        if other.trial == item.trial and other.difference.problem
    ]
    return Mismatch(
        item.trial,
        tuple(departing),
        f"output {item.output.name!r} at {_where(item.trial.point.dims)}: "
        f"{item.difference.problem}",
        reason="mismatch",
        hint="if the difference is acceptable, raise options.atol or options.rtol",
        numerics=report,
    )


def _nothing_ran(reason: str, left_out: Sequence[LeftOut]) -> VerifyError:
    return VerifyError(
        reason,
        reason="nothing_ran",
        hint="declare smaller dims, give samples, or publish it unverified with options.verify off",
        left_out=[item.to_json() for item in left_out],
    )


def _nothing_proven(judged: Sequence[Judged], report: Record) -> VerifyError:
    largest = max(item.difference.range for item in judged)
    return VerifyError(
        f"no output proves anything: the reference's values reach {largest:.1e} at most",
        reason="nothing_proven",
        hint="give samples for which the outputs are of ordinary size",
        numerics=report,
    )


def _where(dims: Any) -> str:
    return ", ".join(f"{name}={value}" for name, value in dims.items()) or "its only shape"
