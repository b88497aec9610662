"""Builds a library once, and verifies it as a build does."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx

from benchmarks.judge.subjects import Subject
from compiler import api
from compiler.errors import CompileError, VerifyError
from compiler.ir import import_model
from compiler.verify import report
from compiler.verify.inputs import Signature, prepare
from compiler.verify.reference import onnx as reference
from compiler.verify.sides import NATIVE, Budget, Reference, Runner
from relaxd.contract.numerics import Verdict
from relaxd.contract.options import CompileOptions
from relaxd.contract.request import CompileRequest

FAULTY = "benchmarks.judge.faulty"
BUDGET = Budget()


@dataclass(frozen=True)
class Outcome:
    """The result of one verification; why: of a failure; slack: the largest, as a share of the
    spread of its output.
    """

    verdict: str
    seconds: float
    why: str = ""
    slack: float = 0.0


@dataclass(frozen=True)
class Judge:
    """Verifies libraries against a model."""

    model: Path
    request: CompileRequest
    signature: Signature
    reference: Reference

    @classmethod
    def of(cls, subject: Subject, folder: Path) -> Judge:
        """Judge of a subject; the folder keeps its model."""
        proto, path = subject.model(), folder / "model.onnx"
        onnx.save(proto, path)
        request = CompileRequest.of(
            dims=dict(subject.dims), inputs=dict(subject.inputs), consts=dict(subject.consts)
        )
        prepared = reference.prepare(proto, path, request, folder)
        engines = reference.engines_of(proto)
        signature = Signature.of(import_model(proto, request))
        if signature.quantized and engines == reference.ONNX:
            engines = reference.QUANTIZED
        asked = Reference(prepared.path, dict(request.consts), engines, draws=prepared.draws)
        return cls(path, request, signature, asked)

    def build(self, model: onnx.ModelProto, output: Path) -> str | None:
        """Compile a model without verification; why that failed, None where it did not."""
        try:
            api.compile_model(
                model,
                output=output,
                dims={dim.name: dim for dim in self.request.dims},
                inputs={spec.name: spec.text for spec in self.request.inputs},
                consts=dict(self.request.consts),
                options={"verify": False, "profile": False},
            )
        except CompileError as error:
            return f"{error.code}: {error}"
        return None

    def verify(self, bundle: Path, seed: int, fault: Mapping[str, str] | None = None) -> Outcome:
        """Verify a bundle with inputs by the seed; fault: of `benchmarks.judge.faulty`."""
        runner = Runner(FAULTY, tuple(fault.items())) if fault else NATIVE
        options = CompileOptions(seed=seed, profile=False)
        notes = json.loads((bundle / "kernels.json").read_text())["kernels"]
        began = time.monotonic()
        with TemporaryDirectory(prefix="relaxd-judge-") as scratch:
            folder = Path(scratch)
            trials = prepare(self.signature, None, seed, folder, BUDGET.input_bytes)
            try:
                numerics = report.verify(
                    bundle,
                    self.reference,
                    self.signature,
                    trials.weighed(notes),
                    options,
                    folder,
                    BUDGET,
                    runner,
                )
            except VerifyError as error:
                return Outcome(Verdict.FAILED, time.monotonic() - began, f"{error.code}: {error}")
        return Outcome(numerics["verdict"], time.monotonic() - began, slack=_slack(numerics))


def _slack(numerics: Mapping[str, Any]) -> float:
    shares = (output["slack"] / (output["spread"] or 1.0) for output in numerics["outputs"])
    return max(shares, default=0.0)
