"""Who computes a case: relaxd, ONNX Runtime, and references in float64. Each is called in a process
other than the judge's.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnxruntime

from compiler.build import build
from compiler.errors import CompileError
from compiler.isolation.messages import CompileJob
from compiler.verify.reference import float64
from relaxd.contract.request import CompileRequest
from relaxd.errors import RelaxdError
from relaxd.loader.opening import load
from tests.fuzz.case import Array, Case
from tests.fuzz.front import Front
from tests.support.geometries import builds_for

Outputs = list[Array]
_OPTIONS = {"verify": False, "profile": False}
_FRONT = Front()


@dataclass(frozen=True)
class Failed:
    """code: of a typed failure, else the exception's class; compiled: whether it came later."""

    code: str
    why: str
    compiled: bool = False


@dataclass(frozen=True)
class Question:
    """llvm: the level at which LLVM optimises; 0 takes two thirds of the time of 3; kernels: folder
    of those that were compiled for the case at other geometries, many of which are the same.
    """

    case: Case
    geometry: str
    llvm: int
    kernels: str


def relaxd(question: Question) -> list[Outputs] | Failed:
    """Builds for the geometry as `compile_model` does, loads as a user does, runs every point."""
    case = question.case
    with tempfile.TemporaryDirectory(prefix="relaxd-fuzz-") as folder:
        path, bundle = Path(folder) / "model.onnx", Path(folder) / "bundle"
        model = case.model.SerializeToString()
        path.write_bytes(model)
        request = CompileRequest.of(dims=case.dims, targets=("native",), options=_OPTIONS)
        job = CompileJob(
            str(path),
            request.to_json(),
            "native",
            str(bundle),
            "model",
            kernels=f"{question.kernels}/kept",
            fresh_kernels=question.kernels,
        )
        try:
            with builds_for(question.geometry, question.llvm), _FRONT.share(model):
                build(job)
        except CompileError as error:
            return Failed(error.code, f"{error.failure.op or error.failure.pass_name}: {error}")
        try:
            library = load(bundle, threads=1)
            return [list(library.run(case.feed(point)).values()) for point in case.points]
        except RelaxdError as error:
            return Failed(error.code, str(error), compiled=True)
        except Exception as error:
            return Failed(type(error).__name__, str(error), compiled=True)


def runtime(case: Case) -> list[Outputs] | Failed:
    """ONNX Runtime, in the graph's own float32."""
    try:
        session = onnxruntime.InferenceSession(
            case.model.SerializeToString(), _silent(), providers=["CPUExecutionProvider"]
        )
        return [session.run(None, case.feed(point)) for point in case.points]
    except Exception as error:
        return Failed(type(error).__name__, str(error)[:300])


def exact(case: Case) -> list[Outputs] | Failed:
    """In float64, by ONNX Runtime's kernels where there are some."""
    return _wide(case, float64.EXACT)


def definition(case: Case) -> list[Outputs] | Failed:
    """In float64 by onnx.reference, which shares no fault with ONNX Runtime."""
    return _wide(case, float64.DEFINITION)


def by_node(case: Case) -> list[Outputs] | Failed:
    """ONNX Runtime in float32, of which it is given one node after the other: it refuses graphs all
    of whose nodes it takes.
    """
    names = [output.name for output in case.model.graph.output]
    engines = (float64.by_runtime, float64.by_definition)
    try:
        results = [
            float64.values_of(case.model, case.feed(point), engines, wide=False)
            for point in case.points
        ]
    except RuntimeError as error:
        return Failed(type(error).__name__, str(error))
    return [[values[name] for name in names] for values in results]


def _wide(case: Case, engines: Sequence[float64.Engine]) -> list[Outputs] | Failed:
    names = [output.name for output in case.model.graph.output]
    try:
        results = [
            float64.values_of(case.model, case.feed(point), engines) for point in case.points
        ]
    except RuntimeError as error:
        return Failed(type(error).__name__, str(error))
    return [[values[name] for name in names] for values in results]


def values(case: Case) -> list[dict[str, Array]] | Failed:
    """Every value of the graph at every point, by ONNX Runtime; in float64, what it refuses."""
    names = [name for node in case.model.graph.node for name in node.output if name]
    open_case = case.with_graph(case.model.graph.node, names)
    outputs = runtime(open_case)
    if not isinstance(outputs, Failed):
        return [dict(zip(names, result, strict=True)) for result in outputs]
    try:
        return [
            float64.values_of(case.model, case.feed(point), float64.EXACT) for point in case.points
        ]
    except RuntimeError as error:
        return Failed(type(error).__name__, str(error))


def _silent() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.x64quantprecision", "1")
    return options
