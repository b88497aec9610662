"""Verifies the library of a build beside its reference, which is asked while the library is
compiled where that is possible.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from compiler.building.job import Build, Compiled
from compiler.errors import VerifyError
from compiler.host.machine import cannot_run, in_software
from compiler.host.runners import runner_of
from compiler.isolation.linux.visible_paths import model_files
from compiler.isolation.messages import Progress
from compiler.isolation.step import Record, never
from compiler.quantize.plan import QuantizationPlan
from compiler.quantize.references import references_of
from compiler.targets import TargetStatus
from compiler.verify import report, sides
from compiler.verify.ahead import Ahead, References, Sampled
from compiler.verify.choosing import Choice, choose, says_little
from compiler.verify.earlier_judgement import EarlierJudgement, is_marked
from compiler.verify.inputs import array_file
from compiler.verify.inputs.adapter_counts import with_few_adapters
from compiler.verify.inputs.distributions import Distribution
from compiler.verify.inputs.inputs import Signature, Trials, prepare
from compiler.verify.inputs.samples import to_npz
from compiler.verify.progress import OnStep, Step
from compiler.verify.reference import onnx as reference
from compiler.verify.reference import tflite
from relaxd.contract.bundle.adapters import Adapters
from relaxd.contract.states import Stage

BUDGET = sides.Budget()
_EMULATED = sides.Budget(seconds=480.0)
_LARGEST_AHEAD = 1 << 30
"""Bytes of a model whose reference may run while its library is compiled: both hold its weights."""


def report_steps(this: Build) -> OnStep:
    """Passes on how far a side of verification is."""

    def report(step: Step) -> None:
        message, left = step.describe(), step.seconds_left
        this.on_event(Progress(Stage.VERIFY, message, step.done, step.total, left))

    return report


def choose_and_verify(
    this: Build,
    original: sides.Reference,
    compiled: Compiled,
    faulty: sides.Runner | None = None,
    ahead: Ahead | None = None,
) -> tuple[Record, Trials]:
    """Verify with inputs of a distribution on which outputs vary; where all outputs are about 0,
    once more with noise of another scale, if they vary on that. Gives the report and the trials.

    faulty: runs the library in place of what runs it on this machine, to measure verification.
    ahead: asks the reference already, or not.
    """
    signature = with_few_adapters(compiled.signature.original, compiled.manifest.adapters)
    judgement = EarlierJudgement() if faulty else _earlier_judgement(this, compiled)
    if judgement.record is not None:
        count = len(judgement.record["points"])
        message = f"an earlier build judged this code at {count} shapes"
        this.on_event(Progress(Stage.VERIFY, message))
        if ahead is not None:
            ahead.cancel()
    asked = ahead and ahead.wait_for_inputs()

    def verify(choice: Choice, sampled: Trials | None = None) -> tuple[Record, Trials]:
        trials = sampled or _trials(this, signature, choice.distribution)
        left = judgement.reduce(trials).add_work(compiled.kernels)
        numerics = _verified(this, original, compiled, left, faulty, ahead if sampled else None)
        return judgement.settle({**numerics, "inputs": choice.to_json()}, signature), trials

    first, sampled = asked or (judgement.choice or _choice(this, signature, original), None)
    failure = None
    try:
        numerics, trials = verify(first, sampled)
        if not says_little(numerics):
            return numerics, trials
    except VerifyError as error:
        if error.code != "verify.nothing_proven":
            raise
        failure = error
    second = _choice(this, signature, original, scaled=True)
    if second.distribution is not first.distribution:
        return verify(second)
    if failure is not None:
        raise failure
    return numerics, trials


def _earlier_judgement(this: Build, compiled: Compiled) -> EarlierJudgement:
    """How an earlier build judged equal code: none where weights decide more than numbers, or
    nothing is kept of builds.
    """
    signature, job = compiled.signature, this.job
    plain = compiled.quantization == QuantizationPlan() and not signature.quantized
    if not (plain and compiled.structure and _may_be_judged(this, signature)):
        return EarlierJudgement()
    assert job.kernels is not None
    assert job.fresh_kernels is not None
    stored, fresh = Path(job.kernels), Path(job.fresh_kernels)
    asked = (this.request.to_json(), compiled.structure)
    return EarlierJudgement.of(this.partial, compiled.manifest, asked, stored, fresh)


def _may_be_judged(this: Build, signature: Signature) -> bool:
    """Tell whether an earlier build's judgement is looked for, whatever the library is."""
    job = this.job
    if not (this.request.options.verify and job.kernels and job.fresh_kernels):
        return False
    again = job.verify_again or signature.in_place or job.samples or not this.more_points
    return not again


def _choice(
    this: Build,
    signature: Signature,
    original: sides.Reference,
    *,
    scaled: bool = False,
    cancelled: Callable[[], bool] = never,
) -> Choice:
    """The distribution of inputs where the request has no samples."""
    if not this.request.options.verify or this.job.samples or not this.more_points:
        return Choice()
    this.on_event(Progress(Stage.VERIFY, "choosing what inputs are drawn from"))
    folder, seed = this.scratch / f"distributions{scaled:d}", this.request.options.seed
    budget = dataclasses.replace(BUDGET, cancelled=cancelled)
    return choose(signature, original, seed, folder, budget, scaled=scaled)


def _trials(this: Build, signature: Signature, wanted: Distribution) -> Trials:
    if not (this.request.options.verify or this.request.options.profile):
        return Trials((), ())
    samples = Path(this.job.samples) if this.job.samples else None
    emulated = cannot_run(this.target) is not None
    return prepare(
        signature,
        samples,
        this.request.options.seed,
        this.scratch,
        BUDGET.input_bytes,
        slow=emulated,
        more_points=this.more_points,
        wanted=wanted,
    )


def _verified(
    this: Build,
    original: sides.Reference,
    compiled: Compiled,
    trials: Trials,
    faulty: sides.Runner | None,
    ahead: Ahead | None,
) -> Record:
    """`_verify`; a mismatch leaves its inputs in the job's reproducer."""
    try:
        return _verify(this, original, compiled, trials, faulty, ahead)
    except report.Mismatch as error:
        if this.job.reproducer is not None:
            folder = Path(this.job.reproducer)
            folder.mkdir(parents=True)
            to_npz(folder / "inputs.npz", array_file.read(error.trial.inputs))
        raise


def _verify(
    this: Build,
    original: sides.Reference,
    compiled: Compiled,
    trials: Trials,
    faulty: sides.Runner | None,
    ahead: Ahead | None,
) -> Record:
    signature = compiled.signature.original
    if not this.request.options.verify:
        return report.not_run("options.verify is off", TargetStatus.UNVERIFIED, trials.left_out)
    runner = faulty or runner_of(this.target, this.flavour, this.partial, this.scratch)
    if isinstance(runner, str):
        return report.not_run(runner, TargetStatus.COMPILED_ONLY)
    how = "" if runner.status is TargetStatus.EXECUTED else ", emulated"
    this.on_event(
        Progress(Stage.VERIFY, f"comparing with the reference at {len(trials.chosen)} shapes{how}")
    )
    budget = BUDGET if runner is sides.NATIVE else _EMULATED
    budget = dataclasses.replace(budget, on_step=report_steps(this))
    original, parts = (
        ahead.wait_for_references()
        if ahead
        else references_for(this, original, compiled.signature, compiled.quantization)
    )
    return report.verify(
        this.partial,
        original,
        signature,
        trials,
        this.request.options,
        this.scratch,
        budget,
        runner,
        parts,
        ahead.wait_for_answer if ahead else None,
    )


def references_for(
    this: Build, original: sides.Reference, signature: Signature, plan: QuantizationPlan
) -> References:
    """The reference of a library of this signature, and those of its quantizations."""
    if signature.quantized and original.engines == reference.ONNX:
        original = dataclasses.replace(original, engines=reference.QUANTIZED)
    if tflite.beside(original.model).is_file():
        original = dataclasses.replace(original, engines=(reference.TFLITE, *original.engines))
    return references_of(original, plan, signature.in_place, this.scratch)


def _is_asked_ahead(this: Build) -> bool:
    """Tell whether the reference is asked while the library is compiled: of a library that this
    machine runs, and a model that fits into memory twice.
    """
    if not this.request.options.verify or cannot_run(this.target) or in_software(this.target):
        return False
    files = {path for path in model_files(Path(this.job.model)) if path.is_file()}
    size = sum(path.stat().st_size for path in files)
    return size <= _LARGEST_AHEAD


def draw_ahead(
    this: Build,
    ahead: Ahead,
    original: sides.Reference,
    signature: Signature,
    adapters: Adapters | None,
    structure: str,
) -> None:
    """Begin with the inputs, where the reference can be asked ahead; not where an earlier build
    judged such a model, as two points are then left. structure: as of `Compiled`.
    """
    kernels, asked = this.job.kernels, (this.request.to_json(), structure)
    looked_for = bool(structure) and _may_be_judged(this, signature)
    if looked_for and kernels and is_marked(Path(kernels), asked):
        return
    if _is_asked_ahead(this):
        own = with_few_adapters(signature.original, adapters)
        ahead.draw(partial(_draw, this, original, own))


def ask_ahead(
    this: Build, ahead: Ahead, references: Callable[[], References], kernels: Sequence[Record]
) -> None:
    """Ask the reference, where inputs are drawn for it; kernels: the notes of the library's."""
    ahead.ask(references, kernels, this.scratch, BUDGET)


def _draw(
    this: Build, original: sides.Reference, signature: Signature, cancelled: Callable[[], bool]
) -> Sampled:
    """The inputs of verification, and what they were drawn from."""
    this = dataclasses.replace(this, on_event=lambda event: None)
    choice = _choice(this, signature, original, cancelled=cancelled)
    return choice, _trials(this, signature, choice.distribution)
