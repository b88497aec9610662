"""One build from model file to bundle, in this very process: a crash of TVM is a crash of the
caller.

`isolation.child.run_child` runs it in a process of its own; calling it directly is for thousands of
trusted models.
"""

import dataclasses
import shutil
import tempfile
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from compiler import targets
from compiler.building.job import Build, Compiled
from compiler.building.verification import (
    BUDGET,
    ask_ahead,
    choose_and_verify,
    draw_ahead,
    references_for,
    report_steps,
)
from compiler.bundle import files
from compiler.frontend import kv_cache as state
from compiler.frontend.entry import imported_from, open_for
from compiler.frontend.strings import encode_samples
from compiler.ir.files.model_file import LoadedModel, LoadedProgram, LoadedScript
from compiler.ir.onnx.model.structure import structure_of
from compiler.ir.tflite.file import is_tflite
from compiler.isolation import output
from compiler.isolation.level import Level
from compiler.isolation.messages import CompileJob, Progress
from compiler.isolation.stages import OnEvent, enter
from compiler.isolation.step import Record
from compiler.isolation.throttle import Throttle
from compiler.key import action_key
from compiler.profile import stage
from compiler.quantize.measuring import Measurements
from compiler.quantize.plan import QuantizationPlan
from compiler.toolchain import cuda, versions
from compiler.toolchain.objects import Objects
from compiler.verify import sides
from compiler.verify.ahead import Ahead
from compiler.verify.inputs.inputs import Signature, Trials
from compiler.verify.reference import onnx as reference
from compiler.verify.reference import tflite
from compiler.verify.strings import verify_strings
from relaxd.contract.bundle import kernels, profile
from relaxd.contract.bundle.manifest import Manifest
from relaxd.contract.bundle.numerics import FILENAME as NUMERICS
from relaxd.contract.bundle.numerics import Verdict
from relaxd.contract.bundle.strings import FILENAME as STRINGS
from relaxd.contract.options import Calibration
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import Stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    import tvm

    from compiler.codegen.kernel_cache import KernelCache
    from compiler.ir.imported import Imported
    from compiler.passes.framework.observers import Observer
    from compiler.passes.pipelines import QuantizationPass


def build(
    job: CompileJob, on_event: OnEvent = lambda event: None, *, more_points: bool = True
) -> Manifest:
    """Build the bundle into `job.output`, which appears complete or not at all; raises
    CompileError.

    more_points: verify and profile at points of the dims' ranges, not at the samples alone.
    """
    output.begin(job)
    try:
        manifest = fill(job, on_event, more_points=more_points)
        output.deliver(job)
    finally:
        output.discard(job)
    return manifest


def fill(
    job: CompileJob,
    on_event: OnEvent = lambda event: None,
    *,
    sandbox: Level = Level.NONE,
    more_points: bool = True,
) -> Manifest:
    """Build the bundle into `output.partial_of(job)`, an empty folder; raises CompileError.

    sandbox: how well this process is confined, which the manifest states.
    """
    with tempfile.TemporaryDirectory(prefix="relaxd-build-") as scratch:
        with enter(Stage.LOAD, on_event):
            request = CompileRequest.from_json(job.request)
            target, partial = targets.resolve(job.target), output.partial_of(job)
            folder = Path(scratch)
            model = open_for(job, request)
            job = _with_samples(job, model, folder)
            this = Build(job, request, target, partial, folder, on_event, more_points, sandbox)
        return _build(this, model)


def _with_samples(job: CompileJob, model: LoadedModel | LoadedScript, folder: Path) -> CompileJob:
    """The job with samples for the library, where its own hold strings."""
    if job.samples is None or not isinstance(model, LoadedModel) or model.strings is None:
        return job
    samples = encode_samples(Path(job.samples), model.strings, folder)
    return dataclasses.replace(job, samples=str(samples))


def _build(this: Build, model: LoadedModel | LoadedScript) -> Manifest:
    original = reference_of(this, model)
    with Ahead(report_steps(this)) as ahead:
        compiled = compile_library(this, model, original, ahead)
        manifest, signature = compiled.manifest, compiled.signature
        with enter(Stage.VERIFY, this.on_event):
            numerics, trials = choose_and_verify(this, original, compiled, ahead=ahead)
            numerics = _with_strings(this, numerics) if manifest.strings else numerics
            files.write_report(this.partial, NUMERICS, numerics)
    target = {**manifest.target, "status": numerics["status"]}
    sealed = files.seal(this.partial, dataclasses.replace(manifest, target=target))
    with enter(Stage.PROFILE, this.on_event):
        # Beside the bundle and no part of it: equal code is an equal bundle, wherever it ran.
        subject = stage.Subject(
            this.partial, sealed, this.target, this.request, signature, compiled.kernels
        )
        files.write_report(
            this.partial, profile.FILENAME, _profile(this, subject, trials, original)
        )
    return sealed


def _profile(
    this: Build, subject: stage.Subject, trials: Trials, original: sides.Reference
) -> Record:
    samples = Path(this.job.samples) if this.job.samples else None
    # ONNX Runtime would run the model that we wrote of a TFLite file, which nobody serves.
    is_own = subject.manifest.state is not None or is_tflite(Path(this.job.model))
    beside = None if is_own else stage.beside_of(original)

    def count_points(done: int, total: int) -> None:
        message = f"timed at {done} of {total} shapes"
        this.on_event(Progress(Stage.PROFILE, message, done, total))

    return stage.run_profile(subject, trials, samples, beside, this.scratch, count_points)


def _with_strings(this: Build, numerics: Record) -> Record:
    """The report with that of the steps on strings; raises VerifyError where they are wrong."""
    options = this.request.options
    if not options.verify:
        return numerics
    this.on_event(Progress(Stage.VERIFY, "comparing strings with the reference"))
    model, asked = Path(this.job.model), this.request.to_json()
    strings = verify_strings(model, asked, options.seed, this.scratch, BUDGET)
    if strings["verdict"] != Verdict.NOT_RUN:
        return {**numerics, "strings": strings}
    warning = f"the steps on strings were not compared: {strings['reason']}"
    return {
        **numerics,
        "strings": strings,
        "warnings": [*numerics.get("warnings", []), warning],
    }


def compile_library(
    this: Build,
    model: LoadedModel | LoadedScript,
    original: sides.Reference,
    ahead: Ahead | None = None,
) -> Compiled:
    """Write a sealed bundle without reports of verification and profile into `partial`; the model
    is emptied. Raises CompileError.

    ahead: asks the reference meanwhile.
    """
    with ThreadPoolExecutor(1) as writer:
        compiled = _compile(this, model, original, writer, ahead)
    files.write_report(this.partial, kernels.FILENAME, {"kernels": compiled.kernels})
    return dataclasses.replace(compiled, manifest=files.seal(this.partial, compiled.manifest))


def _compile(
    this: Build,
    model: LoadedModel | LoadedScript,
    original: sides.Reference,
    writer: Executor,
    ahead: Ahead | None,
) -> Compiled:
    """Writes the library, its weights and its runtime into the partial bundle.

    writer: writes and digests the weights while later passes run: neither needs Python's lock.
    """
    with enter(Stage.IMPORT, this.on_event):
        samples = Path(this.job.samples) if this.job.samples else None
        measurements = Measurements(this.request, original, samples, this.scratch, this.more_points)
        imported, plan = imported_from(model, this.request, this.target, measurements)
        structure = ""
        if isinstance(model, LoadedModel):
            structure = structure_of(model.proto)
            # The module holds its own copy of the weights.
            model.proto.Clear()
        strings = model.strings if isinstance(model, LoadedModel) else None
        signature = dataclasses.replace(
            Signature.of(imported), examples=strings.examples if strings else {}
        )
        if imported.in_place is not None:
            state.require_host(this.target, imported.in_place.state.stored)
        stage.check_grid(this.request, signature)
        adapters = model.adapters if isinstance(model, LoadedModel) else None
        if ahead is not None:
            draw_ahead(this, ahead, original, signature, adapters, structure)
    # TVM takes a second to import: a model that cannot even be read fails before that, and torch
    # has to come first.
    from compiler.backends import backend
    from compiler.bundle import weights
    from compiler.codegen import generate
    from compiler.passes import manager, memory_report
    from compiler.passes.framework.kernel_notes import kernel_table
    from compiler.passes.framework.kernel_work import KernelWork
    from compiler.passes.framework.node_names import NodeNames

    digest = this.job.model_digest or model.digest
    embedded = this.target.embeds(this.request.options.embed_weights, this.flavour)
    dumps = _dumps(this, imported)
    # A dump is to show what every kernel becomes.
    earlier = None if dumps else _kernels(this)
    operators = () if this.target.device is not None else this.request.operators
    subject = backend.Subject(
        this.job.model_name, digest, this.target, imported, embedded, earlier, operators
    )
    maker = backend.backend_of(this.flavour, subject)
    with enter(Stage.PASS, this.on_event):
        memory = memory_report.MemoryReport(imported.ranges)
        names, work = NodeNames(imported.nodes), KernelWork(imported.ranges)
        module, plan, quantization = _planned(
            this, imported, plan, measurements, (*dumps, names, work)
        )
        scheduled = manager.to_kernels(
            module,
            this.target,
            imported.ranges,
            (*dumps, names, work),
            quantization,
            earlier if maker.takes_objects else None,
            planned=quantization is not None,
        )
        nodes = names.of_kernels(scheduled)
        notes = kernel_table(scheduled, nodes, work.table)
        if ahead is not None:
            references = partial(references_for, this, original, signature, plan)
            ask_ahead(this, ahead, references, notes)
        separated = weights.separate(scheduled, smallest=maker.smallest_weight)
        weights_file = this.partial / files.WEIGHTS
        writing = writer.submit(weights.write, separated.constants, weights_file)
        layout = weights.layout(separated.constants)
        observers = (memory, *dumps)
        lowered = maker.lower(separated.module, imported.ranges, observers)
        del scheduled, separated
    with enter(Stage.CODEGEN, this.on_event):
        code = maker.generate(lowered, nodes, dumps)
        del lowered
    with enter(Stage.LINK, this.on_event):
        maker.link(code, this.partial, layout, writing.result)
        written = writing.result()
        files.write_texts(this.partial, model.text.documents)
        if strings is not None:
            files.write_texts(this.partial, {STRINGS: strings.steps.to_json()})
        for name, reason in model.text.left_out.items():
            this.on_event(Progress(Stage.LINK, f"the bundle gets no {name}: {reason}"))
    manifest = _manifest(this, model.digest, signature, generate.llvm_version())
    manifest = dataclasses.replace(
        manifest,
        files={} if written.entry is None else {files.WEIGHTS: written.entry},
        weights=written.table,
        memory=memory.report,
        state=imported.in_place.state if imported.in_place else None,
        adapters=adapters,
        stored=plan.weights.stored if plan.weights else None,
        narrow=plan.layers,
        left_out=dict(model.text.left_out),
        strings=strings.describe(signature.inputs, signature.outputs) if strings else None,
    )
    manifest = maker.describe(manifest, this.partial)
    return Compiled(manifest, signature, notes, plan, structure)


def _planned(
    this: Build,
    imported: "Imported",
    plan: QuantizationPlan,
    measurements: Measurements,
    observers: "Sequence[Observer]",
) -> "tuple[tvm.IRModule, QuantizationPlan, QuantizationPass | None]":
    """The module up to where a pass quantizes it, the complete plan, and the pass; the module as it
    was imported where no pass quantizes.
    """
    from compiler.passes import manager
    from compiler.quantize.module_plan import complete, pass_of

    quantization = pass_of(plan, this.request, imported, this.target)
    if quantization is None:
        return imported.module, plan, None
    if this.request.options.calibration is Calibration.GPTQ:
        this.on_event(Progress(Stage.PASS, "calibrating weights by the samples"))
    module = manager.to_quantization(
        imported.module, this.target, imported.ranges, quantization, observers
    )
    plan, planned = complete(plan, quantization, module, measurements, Signature.of(imported))
    return module, plan, planned


def _kernels(this: Build) -> "KernelCache | None":
    """Where the job has kernels of earlier builds looked up."""
    if this.job.kernels is None or this.job.fresh_kernels is None:
        return None
    from compiler.codegen.kernel_cache import KernelCache
    from compiler.runtimes import canonical

    def report(kernels: int, reused: int) -> None:
        message = f"{reused} of {kernels} kernels were compiled by earlier builds"
        this.on_event(Progress(Stage.CODEGEN, message))

    def count(done: int, total: int) -> None:
        message = f"compiled {done} of {total} kernels"
        this.on_event(Progress(Stage.CODEGEN, message, done, total))

    stored, fresh = Objects(Path(this.job.kernels)), Objects(Path(this.job.fresh_kernels))
    return KernelCache(stored, fresh, canonical.library(), report, this.flavour, Throttle(count))


def _dumps(this: Build, imported: "Imported") -> "tuple[Observer, ...]":
    """The observers that write the dump and check every pass, where the job asks for a dump."""
    if this.job.dump is None:
        return ()
    from compiler.passes.framework.checks import CheckPasses
    from compiler.passes.framework.dump import Dump

    dump = Dump(Path(this.job.dump), this.target.name, imported.ranges)
    dump.write_start(imported.module)
    return dump, CheckPasses()


def reference_of(this: Build, model: LoadedModel | LoadedScript) -> sides.Reference:
    """The model that the reference runs; what is prepared of it goes to the scratch folder."""
    consts = dict(this.request.consts)
    if isinstance(model, LoadedScript):
        exported = isinstance(model, LoadedProgram)
        asked = reference.EXPORTED if exported else reference.TORCHSCRIPT
        return sides.Reference(model.path, consts, asked)
    path = model.file or reference.save_model(model.proto, this.scratch)
    prepared = reference.prepare(model.proto, path, this.request, this.scratch)
    if is_tflite(Path(this.job.model)) and prepared.path == path and tflite.serves(model.proto):
        shutil.copyfile(this.job.model, tflite.beside(path))
    engines = reference.engines_of(model.proto)
    return sides.Reference(prepared.path, consts, engines, draws=prepared.draws)


def _manifest(this: Build, digest: str, signature: Signature, llvm: str) -> Manifest:
    tools = versions.versions()
    runtime = {"apache-tvm": tools["tvm"], "apache-tvm-ffi": tools["tvm_ffi"]}
    runtime |= {"nvidia-cuda-runtime": cuda.DRIVER} if this.target.kind == "cuda" else {}
    return Manifest(
        name=this.job.model_name,
        inputs=signature.inputs,
        outputs=signature.outputs,
        dims=signature.dims,
        target=this.target.to_json(),
        load=dataclasses.replace(this.target.load, runtime=runtime),
        action_key=action_key(
            this.job.model_digest or digest, this.request, this.target, tools
        ).to_json(),
        toolchain={**tools, "llvm_version": llvm},
        library=this.target.platform.library,
        builder={"sandbox": this.sandbox.value},
        alignment=1 if this.target.kind == "llvm" else 64,
    )
