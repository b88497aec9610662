"""Runs a new library against a reference at several points of its dims, and says what it found in
numerics.json.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from compiler.errors import VerifyError
from compiler.isolation.step import HUNG, Record
from compiler.targets import TargetStatus
from compiler.verify.inputs.inputs import LeftOut, Signature, Trial, Trials
from compiler.verify.judge.evidence import Evidence
from compiler.verify.judge.judged import (
    Judged,
    inexactness_of,
    is_strict,
    judge_again,
    judge_all,
    summary,
    verdict_of,
)
from compiler.verify.quantization_changes import (
    QuantizationErrors,
    changes,
    check_error,
    check_likeness,
)
from compiler.verify.reach import find_greatest_dims, warn_unproven, warn_unreached
from compiler.verify.sides import (
    NATIVE,
    Answered,
    Budget,
    Reference,
    Runner,
    Unable,
    ask_reference,
    run_library,
    where,
)
from compiler.verify.uncertainty import (
    MORE_SEEDS,
    Answers,
    Quantization,
    ask_quantizing,
    evaluate,
    exact_engines,
    perturb_in_turn,
    perturb_more,
    show_indexed,
)
from relaxd.contract.bundle.numerics import AGREED, Verdict
from relaxd.contract.options import CompileOptions

PATIENCE, CHEAPEST = 4, 2
"""How many times longer the cheapest points may take where the reference answered at none in time:
its start alone may take all of it, and processors that share caches compute more slowly.
"""
_FINAL = f"refused|{HUNG}"
"""What the reason of a point has to which a reference has no better answer with more time."""
_LATE = "no perturbed reference, which tells how far roundings move it, ended in time"


class Mismatch(VerifyError):
    """Outputs differ from the reference's; trial: the first where they do; departing: the names of
    those that differ there.
    """

    def __init__(
        self, trial: Trial, departing: tuple[str, ...], message: str, **fields: Any
    ) -> None:
        super().__init__(message, **fields)
        self.trial = trial
        self.departing = departing


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
    quantizations: Sequence[Quantization] = (),
    answer: Callable[[], Answered] | None = None,
) -> Record:
    """The report; raises VerifyError when the library fails, crashes or differs, and when no point
    could be compared or no comparison proves anything. `folder` is scratch space.

    quantizations: those of weights, operands and caches, by the library and the reference: the
    report states what each changes, and more than the options allow is an error, too. answer: that
    of a reference which was asked at the `trials_to_ask` before.
    """
    left_out = list(trials.left_out)
    asked = trials_to_ask(reference, trials)
    asking = answer() if answer else ask_patiently(reference, asked, folder, budget)
    answered, left_out = asking.trials, [*left_out, *asking.left_out]
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
    judged = judge_all(ran, signature, options)
    sure, refused = _ask_all_rows(judged, ran, reference, folder, budget)
    if sure != ran:
        ran, judged = sure, judge_all(sure, signature, options)
        left_out += refused
    judged, known = _judge(
        judged,
        ran,
        reference,
        options,
        folder,
        budget,
        quantizations,
        quantized=signature.quantized,
    )
    left_out += [LeftOut(trial.point, _LATE) for trial in ran if trial.index in known.late]
    judged = [item for item in judged if item.settled or item.trial.index not in known.late]
    ran = [trial for trial in ran if any(item.trial is trial for item in judged)]
    if not judged and signature.outputs:
        raise _nothing_ran(_LATE, left_out)
    report = {
        **_report(asking.engine, judged, ran, left_out, options),
        "float64": known.float64,
        "verified_up_to": find_greatest_dims(ran),
        "warnings": [
            *warn_unreached(signature, find_greatest_dims(ran)),
            *warn_unproven(judged),
        ],
        "status": runner.status.value,
        **({"emulation": dict(runner.emulation)} if runner.emulation else {}),
    }
    if report["verdict"] == Verdict.FAILED:
        raise _mismatch(judged, report, options)
    if report["verdict"] == Verdict.INCONCLUSIVE:
        raise _nothing_proven(report)
    for one in quantizations:
        state_changes(report, one, ran, signature, options, known, folder, budget)
    return report


def trials_to_ask(reference: Reference, trials: Trials) -> list[Trial]:
    """The trials as the reference is asked: numbers that are drawn in the graph are others in each
    row.
    """
    return [replace(t, repeat=None) if reference.draws else t for t in trials.chosen]


def ask_patiently(
    reference: Reference, asked: Sequence[Trial], folder: Path, budget: Budget
) -> Answered:
    """Ask the reference, and where it answers at no point in time, once more for the cheapest ones;
    not where it refuses all, or hangs.
    """
    answer = _ask(reference, asked, folder, budget)
    if answer.trials or all(re.search(_FINAL, item.reason) for item in answer.left_out):
        return answer
    longer = replace(budget, seconds=PATIENCE * budget.seconds)
    again = _ask(reference, asked[:CHEAPEST], folder, longer)
    points = [trial.point for trial in asked[:CHEAPEST]]
    others = [item for item in answer.left_out if item.point not in points]
    return replace(again, left_out=[*again.left_out, *others])


def _ask(reference: Reference, asked: Sequence[Trial], folder: Path, budget: Budget) -> Answered:
    """Ask the reference for rows that repeat once, and for whole batches where it refuses those: an
    index may point beyond them.
    """
    answer = ask_reference(reference, asked, folder, budget, distinct=True)
    refused = [item.point for item in answer.left_out if "refused" in item.reason]
    again = [replace(t, repeat=None) for t in asked if t.repeat and t.point in refused]
    if not again:
        return answer
    more = ask_reference(reference, again, folder, budget)
    order = [trial.index for trial in asked]
    answered = sorted([*answer.trials, *more.trials], key=lambda t: order.index(t.index))
    points = [trial.point for trial in again]
    others = [item for item in answer.left_out if item.point not in points]
    return Answered(answer.engine or more.engine, answered, [*others, *more.left_out])


def _ask_all_rows(
    judged: Sequence[Judged],
    ran: Sequence[Trial],
    reference: Reference,
    folder: Path,
    budget: Budget,
) -> tuple[list[Trial], list[LeftOut]]:
    """Ask the reference for whole batches where the library departs from the rows that it computed
    once: they may not be computed each by itself. The trials as the reference has answered them,
    and those that it had no time for.
    """
    doubted = {j.trial.index for j in judged if j.trial.repeat and j.verdict not in AGREED}
    if not doubted:
        return list(ran), []
    complete = [replace(trial, repeat=None) for trial in ran if trial.index in doubted]
    answer = ask_reference(reference, complete, folder, budget)
    sure = {trial.index: trial for trial in ran if trial.index not in doubted}
    sure |= {trial.index: trial for trial in answer.trials}
    return [sure[trial.index] for trial in ran if trial.index in sure], answer.left_out


def _judge(
    first: Sequence[Judged],
    ran: Sequence[Trial],
    reference: Reference,
    options: CompileOptions,
    folder: Path,
    budget: Budget,
    quantizations: Sequence[Quantization],
    *,
    quantized: bool,
) -> tuple[list[Judged], Answers]:
    """Add to what was judged by the reference alone what others answered where an output departs:
    what indices point into, perturbed references, then evaluations in float64, as long as one is
    not settled.

    An output of another shape or dtype is wrong at once. quantized: as of `Signature`.
    """
    judged, known, strict = list(first), Answers(), is_strict(options)
    if any(item.difference.structural for item in judged):
        return judged, known

    def unsettled() -> list[Trial]:
        return find_unsettled(judged, ran)

    def evidence(trial: Trial, name: str) -> Evidence:
        answers = known.evidence(trial, name)
        return replace(answers, inexactness=inexactness_of(judged, name), strict=strict)

    if unsettled() and not strict:
        names = dict.fromkeys(item.output.name for item in judged if not item.settled)
        known, reference = show_indexed(known, unsettled(), names, reference, folder, budget)
        judged = judge_again(judged, evidence) if known.shown else judged
    if not strict:
        turns = perturb_in_turn(known, unsettled, reference, quantizations, folder, budget)
        for answers in turns:
            known = answers
            judged = judge_again(judged, evidence, unsettled())
        quantizes = quantized or any(one.perturbed for one in quantizations)
        for seeds in MORE_SEEDS if quantizes else ():
            if unsettled():
                known = perturb_more(known, unsettled(), reference, seeds, folder, budget)
                judged = judge_again(judged, evidence, unsettled())
    for name in exact_engines(reference):
        if unsettled():
            known = evaluate(known, unsettled(), reference, folder, budget, name)
            judged = judge_again(judged, evidence)
            # Once more by how inexact the reference is at the points that float64 had time for.
            judged = judge_again(judged, evidence)
    return judged, known


def find_unsettled(judged: Sequence[Judged], ran: Sequence[Trial]) -> list[Trial]:
    """The trials at which more evidence may change a verdict that matters.

    Of an output that agrees elsewhere, an INCONCLUSIVE verdict does not: elements are as far off as
    is ever allowed, and more perturbed references only add to the noise. A decoder is chaotic
    behind caches of random numbers, and each of those references takes it seconds.
    """
    agreed = {item.output.name for item in judged if item.verdict in AGREED}
    indices = {
        item.trial.index
        for item in judged
        if not item.settled
        and (item.verdict is not Verdict.INCONCLUSIVE or item.output.name not in agreed)
    }
    return [trial for trial in ran if trial.index in indices]


def state_changes(
    report: Record,
    quantization: Quantization,
    ran: Sequence[Trial],
    signature: Signature,
    options: CompileOptions,
    known: Answers,
    folder: Path,
    budget: Budget,
) -> None:
    """Puts into the report what a rounding changes; raises VerifyError for more than is allowed, or
    more than the sides of equal roundings explain, where there are some.
    """
    wording = quantization.wording
    side = wording.side
    answer = ask_reference(quantization.original, ran, folder, budget, side)
    if not answer.trials:
        reason = answer.left_out[0].reason
        raise _nothing_ran(
            f"the model without rounding answered at no point: {reason}", answer.left_out
        )
    errors = QuantizationErrors(signature, wording)
    changed = changes(answer.trials, errors, options)
    report[wording.part] = {"reference": answer.engine, **changed, **quantization.details}
    check_error(report, options, wording)
    alike = [trial for trial in answer.trials if trial.index in known.perturbed]
    if not (known.equals and alike):
        return
    sides = ("reference", *known.equals)
    try:
        check_likeness(alike, errors, sides, report, options)
    except VerifyError:
        if not (more := ask_quantizing(known, alike, folder, budget)):
            raise
        check_likeness(alike, errors, (*sides, *more), report, options)


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
        "points": [trial.to_json() for trial in ran],
        "left_out": [item.to_json() for item in left_out],
    }


def _mismatch(judged: Sequence[Judged], report: Record, options: CompileOptions) -> Mismatch:
    failed = [item for item in judged if item.verdict is Verdict.FAILED]
    item = max(failed, key=lambda one: one.difference.structural)
    departing = [other.output.name for other in failed if other.trial == item.trial]
    why = f"; {item.why}" if item.why else ""
    point = where(item.trial.point.dims)
    return Mismatch(
        item.trial,
        tuple(departing),
        f"output {item.output.name!r} at {point}: {item.difference.problem}{why}",
        reason="mismatch",
        hint=_hint(item, options),
        numerics=report,
    )


def _hint(item: Judged, options: CompileOptions) -> str:
    """Say what to do about a difference of that kind."""
    if is_strict(options) and not item.difference.structural:
        return (
            "the request sets its own tolerances: raise options.atol and options.rtol, or leave "
            "them out, so that rounding errors of the reference are allowed for"
        )
    return (
        "the library is wrong for these inputs: report the model, or the reproducer where there is "
        "one; options.verify off publishes the library unverified"
    )


def _nothing_ran(reason: str, left_out: Sequence[LeftOut]) -> VerifyError:
    return VerifyError(
        reason,
        reason="nothing_ran",
        hint="declare smaller dims, give samples, or publish it unverified with options.verify off",
        left_out=[item.to_json() for item in left_out],
    )


def _nothing_proven(report: Record) -> VerifyError:
    return VerifyError(
        "no output proves anything: perturbing inputs and weights by some ulp moves every output "
        "of the reference as far as its own values differ",
        reason="nothing_proven",
        hint="give samples whose outputs are not ill-conditioned, or publish it unverified with "
        "options.verify off",
        numerics=report,
    )
