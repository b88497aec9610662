"""Runs a new library against a reference at several points of its dims, and says what it found in
numerics.json.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compiler.errors import VerifyError
from compiler.isolation.step import Record
from compiler.targets import TargetStatus
from compiler.verify import npz
from compiler.verify.inputs import LeftOut, Signature, Trial, Trials
from compiler.verify.judged import SIDES, Judged, Verdict, judge_all, summary, verdict_of
from compiler.verify.reach import reached, unbounded, unproven
from compiler.verify.sides import (
    NATIVE,
    Budget,
    Reference,
    Runner,
    Unable,
    ask_reference,
    run_library,
    where,
)
from compiler.verify.spread import (
    Rounded,
    judged_beside,
    judged_without_hanging,
    nudged_sides,
)
from compiler.verify.unrounded import changes, check_error, check_likeness
from relaxd.contract.options import CompileOptions

_LATE = "the references that tell how far equal roundings come apart did not end in time"


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
    engine, answered, refused = ask_reference(reference, trials.chosen, folder, budget)
    left_out += refused
    if not answered:
        first = left_out[0].reason if left_out else "there is no point to try"
        raise _nothing_ran(f"the reference answered at no point: {first}", left_out)
    try:
        ran, unfinished = run_library(bundle, answered, folder, budget, runner)
    except Unable as error:
        return not_run(str(error), TargetStatus.COMPILED_ONLY)
    left_out += unfinished
    if not ran:
        reason = f"the library finished no point: {unfinished[0].reason}"
        if runner.slow:
            return not_run(reason, TargetStatus.COMPILED_ONLY, left_out)
        raise _nothing_ran(reason, left_out)
    judged, equals = judge_all(ran, signature, options), list[str]()
    if any(one.nudged for one in rounded) and any(item.difference.problem for item in judged):
        equals, known = nudged_sides(ran, rounded, folder, budget)
        left_out += [LeftOut(trial.point, _LATE) for trial in ran if trial.index not in known]
        ran = [trial for trial in ran if trial.index in known]
        if not ran:
            raise _nothing_ran(_LATE, left_out)
        judged = judged_beside(ran, signature, options, rounded, equals)
    if any(one.nudged for one in rounded) and any(item.difference.problem for item in judged):

        def again(trials: Sequence[Trial], side: str) -> list[Trial]:
            return run_library(bundle, trials, folder, budget, runner, side)[0] if trials else []

        judged = judged_without_hanging(judged, again)
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
    engine, answered, refused = ask_reference(rounded.original, ran, folder, budget, side)
    if not answered:
        raise _nothing_ran(
            f"the model without rounding answered at no point: {refused[0].reason}", refused
        )
    found = changes(answered, signature, options, wording)
    report[wording.part] = {"reference": engine, **found, **rounded.stated}
    check_error(report, options, wording)
    if equals:
        sides = ("reference", *equals)
        check_likeness(answered, signature, sides, report, options, wording)


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
        f"output {item.output.name!r} at {where(item.trial.point.dims)}: {item.difference.problem}",
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
