"""One case of the zoo: compiled once, loaded as a user does, compared with ONNX Runtime, or with
torch, at every size.

`python -m tests.zoo.measure KEY TARGET [FLAVOUR]` prints what was measured as one JSON line.
"""

import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

from tests.zoo.case import Case, Exporter, Feed, Sizes, feed_of, key_of
from tests.zoo.exporting import ExportError
from tests.zoo.judging import Judged, judge, unproven, worst_of
from tests.zoo.programs import read_points


class Outcome(Enum):
    """How a case ended; `EXPORT` and `REFERENCE` are failures of torch's exporter and of ONNX
    Runtime on its file, `PROVES_NOTHING` is a case of whose outputs none would show a fault,
    `SKIPPED` one whose package is not installed.
    """

    OK = "ok"
    PROVES_NOTHING = "proves nothing"
    WRONG = "wrong"
    REFUSED = "refused"
    ERROR = "error"
    EXPORT = "no export"
    REFERENCE = "no reference"
    TIMEOUT = "timeout"
    CRASH = "crash"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Measured:
    """One case.

    worst: at each of its points, as `tests.zoo.judging` says. unproven: the outputs that would not
    show a fault.
    """

    name: str
    exporter: str
    outcome: Outcome
    compile_seconds: float = 0.0
    points: Sequence[Sizes] = field(default=())
    worst: Sequence[float] = field(default=())
    unproven: Sequence[str] = field(default=())
    error: str = ""

    @property
    def key(self) -> str:
        """The case's."""
        return key_of(self.name, Exporter(self.exporter))

    def to_json(self) -> dict[str, Any]:
        """The form in the report."""
        return {**asdict(self), "outcome": self.outcome.value}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "Measured":
        """Inverse of `to_json`."""
        return cls(**{**document, "outcome": Outcome(document["outcome"])})


def measure(case: Case) -> Measured:
    """Every failure is in the result, under the part that failed."""
    name, exporter = case.name, case.exporter.value
    if not case.installed:
        lacks = f"the package {case.needs} is not installed"
        return Measured(name, exporter, Outcome.SKIPPED, error=lacks)
    try:
        path = case.export()
    except ExportError as error:
        return Measured(name, exporter, Outcome.EXPORT, error=_line(error))
    try:
        feeds, wanted = _references(case, path)
    except Exception as error:
        return Measured(name, exporter, Outcome.REFERENCE, error=_line(error))
    return compare(case, path, feeds, wanted)


def _references(case: Case, path: Path) -> tuple[Sequence[Feed], Sequence[Feed]]:
    if case.exporter.writes_programs:
        return read_points(path, "feeds"), read_points(path, "outputs")
    feeds = [feed_of(case, path, point, seed) for seed, point in enumerate(case.points)]
    return feeds, reference(path, feeds, case.inputs)


def compare(case: Case, path: Path, feeds: Sequence[Feed], wanted: Sequence[Feed]) -> Measured:
    """Ours beside `wanted`, by the names of the outputs; of programs, whose inputs and outputs have
    the names that torch gives them, by their order.
    """
    import relaxd

    started, seconds = time.monotonic(), 0.0
    try:
        with tempfile.TemporaryDirectory(prefix="zoo-") as folder:
            _compile(case, path, Path(folder) / "bundle")
            seconds = time.monotonic() - started
            model = relaxd.load(Path(folder) / "bundle")
            arguments = [
                {name: array for name, array in feed.items() if name not in case.consts}
                for feed in feeds
            ]
            run = partial(_run_in_order, model) if case.exporter.writes_programs else model.run
            judged = [
                judge(run(feed), want, case.rounds)
                for feed, want in zip(arguments, wanted, strict=True)
            ]
    except relaxd.errors.RelaxdError as error:
        outcome = Outcome.ERROR if seconds else Outcome.REFUSED
        return Measured(
            case.name, case.exporter.value, outcome, seconds, error=f"{error.code}: {_line(error)}"
        )
    return Measured(
        case.name,
        case.exporter.value,
        _outcome(judged),
        seconds,
        case.points,
        [worst_of(point) for point in judged],
        unproven(judged),
    )


def _run_in_order(model: Any, feed: Feed) -> Feed:
    names = (spec.name for spec in model.inputs)
    outputs = model.run(dict(zip(names, feed.values(), strict=True)))
    return {str(position): output for position, output in enumerate(outputs.values())}


def _compile(case: Case, path: Path, output: Path) -> None:
    """Compile as a user does; for a geometry of `tests.support.geometries` in this process."""
    from compiler import compile_model
    from compiler.isolation.messages import CompileJob
    from relaxd.contract.request import CompileRequest
    from tests.support.geometries import GEOMETRIES, NATIVE, build_at

    declared = case.request()
    if case.target not in GEOMETRIES:
        compile_model(path, output=output, **declared)
        return
    del declared["target"]
    asked = CompileRequest.of(targets=(NATIVE,), **declared)
    build_at(CompileJob(str(path), asked.to_json(), case.target, str(output), case.name))


def _outcome(judged: Sequence[dict[str, Judged]]) -> Outcome:
    if any(item.wrong for point in judged for item in point.values()):
        return Outcome.WRONG
    nothing = len(unproven(judged)) == len(judged[0])
    return Outcome.PROVES_NOTHING if nothing else Outcome.OK


def reference(
    path: Path, feeds: Sequence[Feed], inputs: Mapping[str, str] | None = None
) -> list[Feed]:
    """ONNX Runtime's outputs by name, for each feed; inputs that are redeclared take any size."""
    import onnxruntime

    from compiler.verify.reference.onnx import WRONG_OPTIMIZERS

    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        _opened(path, inputs) if inputs else str(path),
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=WRONG_OPTIMIZERS,
    )
    taken = {value.name for value in session.get_inputs()}
    names = [output.name for output in session.get_outputs()]
    return [
        dict(
            zip(
                names,
                session.run(names, {k: v for k, v in feed.items() if k in taken}),
                strict=True,
            )
        )
        for feed in feeds
    ]


def _opened(path: Path, inputs: Mapping[str, str]) -> bytes:
    """The file with the axes of `inputs` unnamed, and of what was inferred from them."""
    import onnx

    model = onnx.load(path)
    for value in model.graph.input:
        if value.name in inputs:
            for axis in value.type.tensor_type.shape.dim:
                axis.Clear()
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    del model.graph.value_info[:]
    return model.SerializeToString()


def _line(error: BaseException) -> str:
    """The last line that says something, torch's and ONNX Runtime's errors being long."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or [type(error).__name__])[-1 if isinstance(error, ExportError) else 0][:300]


if __name__ == "__main__":
    # tvm_ffi would import torch into the process that loads the bundles.
    sys.modules.setdefault("torch", None)
    from tests.zoo.cases import CASES

    key, target, *flavour = sys.argv[1:]
    case = CASES[key].build(next(iter(flavour), None), target)
    print(json.dumps(measure(case).to_json()), flush=True)
