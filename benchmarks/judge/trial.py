"""Builds a library once, and verifies it as a build does, with several seeds and with faults."""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import onnx

from benchmarks.judge.effect import Sides, has_effect
from benchmarks.judge.faults import LANES, MODEL_FAULTS, OUTPUT_FAULTS, is_applicable, read_lanes
from benchmarks.judge.outcome import NO_EFFECT, NOT_PLANTED, Outcome, Task
from benchmarks.judge.subjects import Subject
from compiler.build import compile_library, reference_of
from compiler.building.job import Build, Compiled
from compiler.building.verification import choose_and_verify
from compiler.errors import CompileError, VerifyError
from compiler.frontend.entry import open_for
from compiler.host import prepare
from compiler.ir.files.model_file import LoadedScript
from compiler.isolation.level import Level
from compiler.isolation.messages import CompileJob
from compiler.verify.sides import NATIVE, Reference, Runner
from relaxd.contract.bundle.numerics import AGREED, Verdict
from tests.support.geometries import NATIVE as HERE
from tests.support.geometries import geometry

FAULTY = "benchmarks.judge.faulty"
_KERNELS = "kernels"


class NotPlanted(Exception):
    """The model has nothing that the fault changes, or its faulty copy does not compile."""


@dataclass(frozen=True)
class Library:
    """A library in the bundle of its build; seconds: that its compilation took."""

    build: Build
    compiled: Compiled
    seconds: float


class Judge:
    """Verifies libraries of one model against it; keeps what it builds in a folder."""

    def __init__(self, subject: Subject, folder: Path) -> None:
        """Find or make the model's file; raises what an export raises."""
        self._folder = folder
        self._request = subject.request()
        self._model = subject.file(folder)
        self._libraries: dict[str, Library] = {}
        self._original: Reference | None = None
        self._kept = {folder / _KERNELS}
        prepare.prepare(geometry(HERE), self._request.options, kernels=True)

    def run(self, task: Task) -> Outcome:
        """Verify a right build, or one with a fault; what that leaves on disk is removed."""
        before = set(self._folder.iterdir())
        try:
            return self._run(task)
        finally:
            for folder in set(self._folder.iterdir()) - before - self._kept:
                shutil.rmtree(folder)

    def _run(self, task: Task) -> Outcome:
        if not task.fault:
            return self._verify(self._library(task.geometry), task.seed)
        try:
            library, runner = self._plant(task)
        except NotPlanted as error:
            return Outcome(NOT_PLANTED, why=str(error))
        outcome = self._verify(library, task.seed, runner)
        if outcome.verdict in AGREED:
            right = self._library(task.geometry)
            sides = Sides(right.build.partial, library.build.partial, runner or NATIVE)
            signature = right.compiled.signature.original
            folder = self._scratch("effect")
            if not has_effect(sides, self._reference_of(right), signature, task.seed, folder):
                return dataclasses.replace(outcome, verdict=NO_EFFECT, why=outcome.verdict)
        return outcome

    def _library(self, unit: str) -> Library:
        if unit not in self._libraries:
            library = self._libraries[unit] = self._built(self._model, unit)
            self._kept |= {library.build.partial.parent, library.build.scratch}
        return self._libraries[unit]

    def _plant(self, task: Task) -> tuple[Library, Runner | None]:
        random = np.random.default_rng([task.number, task.seed])
        if task.fault in OUTPUT_FAULTS:
            return self._library(task.geometry), self._plant_in_outputs(task, random)
        return self._plant_in_model(task, random), None

    def _plant_in_outputs(self, task: Task, random: np.random.Generator) -> Runner:
        library, lanes = self._library(task.geometry), read_lanes(task.geometry)
        outputs = [spec for spec in library.compiled.signature.outputs if "float" in spec.dtype]
        able = [spec.name for spec in outputs if is_applicable(task.fault, spec, lanes)]
        if not able:
            raise NotPlanted("no output has what the fault changes")
        output = able[random.integers(len(able))]
        spec = {"fault": task.fault, "output": output, LANES: str(lanes)}
        return Runner(FAULTY, tuple(spec.items()))

    def _plant_in_model(self, task: Task, random: np.random.Generator) -> Library:
        loaded = open_for(self._job(self._model, "fault"), self._request)
        if isinstance(loaded, LoadedScript) or loaded.file is None:
            raise NotPlanted("the model is no ONNX")
        fault = MODEL_FAULTS[task.fault]
        if not fault(loaded.proto, random, read_lanes(task.geometry)):
            raise NotPlanted("the model has nothing that the fault changes")
        path = self._scratch("model") / "model.onnx"
        onnx.save_model(loaded.proto, path, save_as_external_data=True, location="model.data")
        try:
            return self._built(path, task.geometry)
        except CompileError as error:
            raise NotPlanted(f"the faulty model is refused: {error}") from error

    def _reference_of(self, library: Library) -> Reference:
        """The reference that a right library is verified by."""
        from compiler.quantize.references import references_of
        from compiler.verify.reference import onnx as reference

        build, compiled = library.build, library.compiled
        original, signature = self._reference(build), compiled.signature.original
        if signature.quantized and original.engines == reference.ONNX:
            original = dataclasses.replace(original, engines=reference.QUANTIZED)
        folder = self._scratch("rounded")
        return references_of(original, compiled.quantization, signature.in_place, folder)[0]

    def _reference(self, build: Build) -> Reference:
        """The model as its file has it, whatever the library was compiled from."""
        if self._original is None:
            job = dataclasses.replace(build.job, model=str(self._model))
            this = dataclasses.replace(build, job=job, scratch=self._scratch("reference"))
            self._kept.add(this.scratch)
            self._original = reference_of(this, open_for(job, self._request))
        return self._original

    def _built(self, model: Path, unit: str) -> Library:
        """Compile a model without verification, for a vector unit; raises CompileError."""
        began = time.monotonic()
        target, job = geometry(unit), self._job(model, "bundle")
        partial, scratch = Path(job.output), self._scratch("build")
        partial.mkdir()
        this = Build(
            job,
            self._request,
            target,
            partial,
            scratch,
            on_event=lambda event: None,
            more_points=True,
            sandbox=Level.NONE,
        )
        original = self._reference(this)
        compiled = compile_library(this, open_for(job, self._request), original)
        return Library(this, compiled, time.monotonic() - began)

    def _job(self, model: Path, name: str) -> CompileJob:
        kernels = str(self._folder / _KERNELS)
        output = str(self._scratch(name) / "bundle")
        return CompileJob(
            str(model),
            self._request.to_json(),
            HERE,
            output,
            "model",
            kernels=kernels,
            fresh_kernels=kernels,
        )

    def _scratch(self, name: str) -> Path:
        return Path(mkdtemp(prefix=f"{name}-", dir=self._folder))

    def _verify(self, library: Library, seed: int, runner: Runner | None = None) -> Outcome:
        """Verify a library with inputs by the seed; runner: of its faulty outputs."""
        options = dataclasses.replace(self._request.options, seed=seed, profile=False)
        request = dataclasses.replace(self._request, options=options)
        this = dataclasses.replace(library.build, request=request, scratch=self._scratch("verify"))
        began = time.monotonic()
        try:
            numerics, _ = choose_and_verify(this, self._reference(this), library.compiled, runner)
        except VerifyError as error:
            why = f"{error.code}: {error}"
            numerics = {"verdict": Verdict.FAILED, "outputs": ()}
        else:
            why = numerics.get("reason", "")
        seconds = time.monotonic() - began
        slack = _slack(numerics)
        return Outcome(str(numerics["verdict"]), seconds, library.seconds, why, slack)


def _slack(numerics: Mapping[str, Any]) -> float:
    shares = (output["slack"] / (output["spread"] or 1.0) for output in numerics["outputs"])
    return max(shares, default=0.0)
