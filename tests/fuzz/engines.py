"""Who computes a case: relaxd, ONNX Runtime, and references in float64. Each is called in a process
other than the judge's.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import AttributeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from compiler.build import build
from compiler.errors import CompileError
from compiler.isolation.messages import CompileJob
from relaxd.contract.request import CompileRequest
from relaxd.errors import RelaxdError
from relaxd.loader.model import load
from tests.fuzz.case import Array, Case
from tests.geometries import builds_for

Outputs = list[Array]
_OPTIONS = {"verify": False, "profile": False}


@dataclass(frozen=True)
class Failed:
    """code: of a typed failure, else the exception's class; compiled: whether it came later."""

    code: str
    why: str
    compiled: bool = False


def relaxd(question: tuple[Case, str]) -> list[Outputs] | Failed:
    """Builds for the geometry as `compile_model` does, loads as a user does, runs every point."""
    case, name = question
    with tempfile.TemporaryDirectory(prefix="relaxd-fuzz-") as folder:
        path, bundle = Path(folder) / "model.onnx", Path(folder) / "bundle"
        path.write_bytes(case.model.SerializeToString())
        request = CompileRequest.of(dims=case.dims, targets=("native",), options=_OPTIONS)
        try:
            with builds_for(name):
                build(CompileJob(str(path), request.to_json(), "native", str(bundle), "model"))
        except CompileError as error:
            return Failed(error.code, f"{error.failure.op or error.failure.pass_name}: {error}")
        try:
            model = load(bundle, threads=1)
            return [list(model.run(case.feed(point)).values()) for point in case.points]
        except RelaxdError as error:
            return Failed(error.code, str(error), compiled=True)
        except Exception as error:
            return Failed(type(error).__name__, str(error), compiled=True)


def runtime(case: Case) -> list[Outputs] | Failed:
    """ONNX Runtime, in the graph's own float32."""
    return _run(case, case.model, np.dtype("float32"))


def exact(case: Case) -> list[Outputs] | Failed:
    """In float64: ONNX Runtime where it has all kernels for that, else onnx.reference."""
    outputs = _run(case, widened(case.model), np.dtype("float64"))
    return definition(case) if isinstance(outputs, Failed) else outputs


def definition(case: Case) -> list[Outputs] | Failed:
    """In float64 by onnx.reference, which shares no fault with ONNX Runtime."""
    try:
        evaluator = ReferenceEvaluator(widened(case.model))
        return [
            [np.asarray(output) for output in evaluator.run(None, _as(case.feed(point), "float64"))]
            for point in case.points
        ]
    except Exception as error:
        return Failed(type(error).__name__, str(error)[:300])


def values(case: Case) -> list[dict[str, Array]] | Failed:
    """Every value of the graph at every point, by ONNX Runtime."""
    names = [name for node in case.model.graph.node for name in node.output if name]
    open_case = case.with_graph(case.model.graph.node, names)
    outputs = runtime(open_case)
    if isinstance(outputs, Failed):
        return outputs
    return [dict(zip(names, found, strict=True)) for found in outputs]


def _run(case: Case, model: onnx.ModelProto, dtype: np.dtype[np.generic]) -> list[Outputs] | Failed:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.x64quantprecision", "1")
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return [session.run(None, _as(case.feed(point), dtype)) for point in case.points]
    except Exception as error:
        return Failed(type(error).__name__, str(error)[:300])


def _as(feed: dict[str, Array], dtype: np.dtype[np.generic] | str) -> dict[str, Array]:
    return {name: array.astype(dtype) for name, array in feed.items()}


def widened(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with float64 for float32: inputs, constants, casts; its branches have neither."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    for info in wide.graph.input:
        if info.type.tensor_type.elem_type == TensorProto.FLOAT:
            info.type.tensor_type.elem_type = TensorProto.DOUBLE
    for constant in wide.graph.initializer:
        if constant.data_type == TensorProto.FLOAT:
            array = numpy_helper.to_array(constant).astype("float64")
            constant.CopyFrom(numpy_helper.from_array(array, constant.name))
    for node in wide.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == 1:
                attribute.CopyFrom(helper.make_attribute("to", int(TensorProto.DOUBLE)))
            assert attribute.type != AttributeProto.TENSOR
    return wide
