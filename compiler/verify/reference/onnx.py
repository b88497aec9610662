"""The reference's side of verify, in a process of its own: ONNX Runtime, else onnx's own evaluator;
torch for TorchScript.
"""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from compiler.errors import summary
from compiler.ir.graph.draws import Draw
from compiler.ir.onnx.model.item_names import join_items, split_items
from compiler.isolation.step import Record, serve
from compiler.verify.point_loop import Arrays, PointFailed, run_points
from compiler.verify.reference import feeding, indexed, perturbation
from compiler.verify.reference.model_files import write_model
from relaxd.contract.dims.tensors import STORAGE
from relaxd.contract.request import CompileRequest

if TYPE_CHECKING:
    import onnx

_DTYPES = {"tensor(float)": "float32", "tensor(double)": "float64"}


WRONG_OPTIMIZERS = ("Pad_Fusion", "GatherToSliceFusion", "MatMulIntegerToFloatFusion")
"""Rewrites of ONNX Runtime 1.31 that change results: `Pad_Fusion` makes a Pad by 0 the padding of a
MaxPool behind it, which never is the greatest; `GatherToSliceFusion` makes a Gather at a Range from
0 a Slice, whose negative end counts from the end of the axis; `MatMulIntegerToFloatFusion` adds a
bias wrongly to rows that have a scale each.
"""


class Engine(Protocol):
    """name: with its version; run: the outputs by name, in the model's order."""

    name: str

    def run(self, feeds: Mapping[str, Any], consts: Mapping[str, Any]) -> Mapping[str, Any]:
        """Outputs by name; consts: scalars for inputs that `feeds` leaves out."""


class OnnxRuntime:
    """ONNX Runtime with its basic graph optimisations: those that do not trade accuracy for speed.

    model: a path, or the file's bytes.
    quantized: keep products of uint8 by int8 exact. Without VNNI they saturate at 16 bits unless an
    extended optimisation rewrites them. threads: 0 for as many as there are cores.
    beside: as people run it, with all optimisations, but with threads that leave the cores to
    another engine between two runs. extensions: with the operators of onnxruntime-extensions.
    """

    def __init__(
        self,
        model: str | bytes,
        quantized: bool = False,
        threads: int = 0,
        beside: bool = False,
        extensions: bool = False,
    ) -> None:
        import onnxruntime

        onnxruntime.disable_telemetry_events()
        settings = onnxruntime.SessionOptions()
        levels = onnxruntime.GraphOptimizationLevel
        settings.graph_optimization_level = (
            levels.ORT_ENABLE_EXTENDED if quantized else levels.ORT_ENABLE_BASIC
        )
        settings.add_session_config_entry("session.x64quantprecision", "1")
        if beside:
            settings.graph_optimization_level = levels.ORT_ENABLE_ALL
            settings.add_session_config_entry("session.force_spinning_stop", "1")
        else:
            # On a busy machine a thread that spins takes the processor from those it waits for.
            settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
        settings.log_severity_level = 4
        if extensions:
            settings.register_custom_ops_library(_extensions())
        settings.intra_op_num_threads = threads
        self._session = onnxruntime.InferenceSession(
            model,
            settings,
            providers=["CPUExecutionProvider"],
            disabled_optimizers=None if beside else WRONG_OPTIMIZERS,
        )
        self.name = f"onnxruntime {onnxruntime.__version__}"

    def run(self, feeds: Mapping[str, Any], consts: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run at one point, as `Engine` says."""
        fixed = {
            entry.name: np.full(
                [size if isinstance(size, int) else 1 for size in entry.shape],
                consts[entry.name],
                _DTYPES.get(entry.type, entry.type.removeprefix("tensor(").removesuffix(")")),
            )
            for entry in self._session.get_inputs()
            if entry.name in consts
        }
        names = [entry.name for entry in self._session.get_outputs()]
        arguments = join_items(
            {**feeds, **fixed}, [entry.name for entry in self._session.get_inputs()]
        )
        return split_items(dict(zip(names, self._session.run(names, arguments), strict=True)))


def _extensions() -> str:
    """The library of onnxruntime-extensions; raises RuntimeError where it is not installed."""
    try:
        from onnxruntime_extensions import get_library_path
    except ImportError as error:
        raise RuntimeError("onnxruntime-extensions is not installed") from error
    return str(get_library_path())


class OnnxReference:
    """onnx's evaluator: slow, and the specification's own reading."""

    def __init__(self, model: str) -> None:
        import onnx
        from onnx.reference import ReferenceEvaluator

        from compiler.ir.files.node_order import sort_nodes
        from compiler.verify.reference.stand_in import OPERATORS, objections

        proto = onnx.load(model)
        if reasons := objections(proto):
            raise ValueError(f"onnx's evaluator does not judge {reasons[0]}")
        sort_nodes(proto)
        self._evaluator = ReferenceEvaluator(proto, new_ops=list(OPERATORS))
        self.name = f"onnx.reference {onnx.__version__}"

    def run(self, feeds: Mapping[str, Any], consts: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run at one point, as `Engine` says."""
        fixed = {name: np.asarray(value) for name, value in consts.items()}
        names = list(self._evaluator.output_names)
        arguments = join_items({**feeds, **fixed}, self._evaluator.input_names)
        return split_items(dict(zip(names, self._evaluator.run(names, arguments), strict=True)))


def _torch(model: str, wide: bool = False) -> Engine:
    from compiler.verify.reference.torch import TorchScript

    return TorchScript(model, wide=wide)


def _exported(model: str, wide: bool = False) -> Engine:
    from compiler.verify.reference.exported import ExportedProgram

    return ExportedProgram(model, wide=wide)


def _tflite(model: str) -> Engine:
    from compiler.verify.reference.tflite import Interpreter

    return Interpreter(model)


def _float64(model: str, definition: bool = False) -> Engine:
    from compiler.verify.reference import float64

    return float64.Float64(model, float64.DEFINITION if definition else float64.EXACT)


ENGINES: dict[str, Callable[[str], Engine]] = {
    "onnxruntime": OnnxRuntime,
    "onnxruntime.quantized": partial(OnnxRuntime, quantized=True),
    "onnxruntime.ordered": partial(OnnxRuntime, threads=1),
    "onnxruntime.quantized.ordered": partial(OnnxRuntime, quantized=True, threads=1),
    "onnx.reference": OnnxReference,
    "torch": _torch,
    "float64": _float64,
    "float64.definition": partial(_float64, definition=True),
    "torch.float64": partial(_torch, wide=True),
    "torch.export": _exported,
    "tflite": _tflite,
    "torch.export.float64": partial(_exported, wide=True),
}
ONNX = ("onnxruntime", "onnx.reference")
QUANTIZED = ("onnxruntime.quantized", "onnx.reference")
ORDERED = ("onnxruntime.ordered", "onnx.reference")
"""For ensembles of trees, whose weights several threads add up in an order of their own: of classes
with equal votes any then wins.
"""
QUANTIZED_LAYERS = ("onnxruntime.quantized.ordered", "onnx.reference")
"""For recurrent layers that quantize their states by the range of the batch: several threads have
parts of the batch, each with a range of its own.
"""
SPECIFICATION = ("onnx.reference",)
TORCHSCRIPT = ("torch",)
EXPORTED = ("torch.export",)
TFLITE = "tflite"
"""Asked before those of the ONNX model, which is what is perturbed and evaluated in float64."""


def exact_engines_of(engines: tuple[str, ...]) -> tuple[str, ...]:
    """The evaluations in float64 that go with references of a model, in the order to ask them."""
    if engines in (TORCHSCRIPT, EXPORTED):
        return (f"{engines[0]}.float64",)
    return ("float64", "float64.definition")


def engines_of(model: "onnx.ModelProto") -> tuple[str, ...]:
    """The references of a model that is not quantized, in the order in which they are tried; onnx's
    evaluator alone where ONNX Runtime is known to differ from the specification.
    """
    from compiler.verify.reference import boundary, departures

    if boundary.truncates(model) or departures.of_onnxruntime(model):
        return SPECIFICATION
    operators = {node.op_type for node in model.graph.node}
    if "DynamicQuantizeLSTM" in operators:
        return QUANTIZED_LAYERS
    return ORDERED if any(name.startswith("TreeEnsemble") for name in operators) else ONNX


@dataclass(frozen=True)
class Prepared:
    """The file to run, and what its inputs are fed that draw numbers in the library."""

    path: Path
    draws: Mapping[str, Draw]


def prepare(
    model: "onnx.ModelProto",
    path: Path,
    request: CompileRequest,
    scratch: Path,
    *,
    widen: bool = True,
) -> Prepared:
    """The model's own file, or a copy whose redeclared inputs say nothing of their shape any more,
    whose inputs and outputs of narrow types are float32 (see `boundary`) unless `widen` is off,
    whose maps of probabilities are tensors, and where inputs stand for random nodes (see
    `feeding`). One of opset 6 is brought to opset 7.
    """
    from compiler.ir.onnx.model.opsets import opset_of
    from compiler.verify.reference import boundary, opset6

    old = opset_of(model.opset_import) == 6
    model = opset6.at_opset_7(model) if old else model
    replacement = feeding.replace_random(model)
    zipped = any(node.op_type == "ZipMap" for node in model.graph.node)
    widen = widen and boundary.has_storage_types(model)
    if not request.inputs and not zipped and not widen and not old and replacement is None:
        return Prepared(path, {})
    relaxed, draws = replacement or (type(model)(), {})
    if replacement is None:
        relaxed.CopyFrom(model)
    _unzip(relaxed)
    if widen:
        boundary.widen(relaxed)
    _loosen(relaxed, request)
    return Prepared(save_model(relaxed, scratch, "reference"), draws)


def save_model(model: "onnx.ModelProto", folder: Path, name: str = "model") -> Path:
    """A new file of the model in the folder."""
    path = folder / f"{name}.onnx"
    write_model(model, path)
    return path


def _loosen(relaxed: "onnx.ModelProto", request: CompileRequest) -> None:
    if not request.inputs:
        return
    redeclared = {spec.name: len(spec.shape) for spec in request.inputs}
    del relaxed.graph.value_info[:]
    for entry in (*relaxed.graph.input, *relaxed.graph.output):
        shape = entry.type.tensor_type.shape
        rank = redeclared.get(entry.name, len(shape.dim))
        if entry.type.HasField("tensor_type") and (entry.name in redeclared or shape.dim):
            del shape.dim[:]
            for _ in range(rank):
                shape.dim.add()


def _unzip(model: "onnx.ModelProto") -> None:
    """Give what ZipMap nodes read in place of what they make of it, as the import does."""
    names = set()
    for node in model.graph.node:
        if node.op_type == "ZipMap":
            names.add(node.output[0])
            node.op_type, node.domain = "Identity", ""
            del node.attribute[:]
    for entry in model.graph.output:
        if entry.name in names:
            entry.type.Clear()
            entry.type.tensor_type.elem_type = 1


def run_reference(spec: Record, record: Callable[[Record], None]) -> None:
    """Record the engine's name, then run it at every point of the spec (see `run_points`), and
    record at last the operators that an evaluation in float64 computed in float32.

    spec: also holds engine, model, consts, draws, perturbation, the seed by which inputs and
    weights are moved (see `perturbation`), None for neither, and shown, the values of the graph
    that are outputs too.
    """
    seed = spec.get("perturbation")
    changed = seed is not None or spec.get("shown")
    engine = _change(spec, seed) if changed else ENGINES[spec["engine"]](spec["model"])
    record({"engine": engine.name})
    draws = {name: Draw.from_json(draw) for name, draw in spec.get("draws", {}).items()}

    def run(inputs: Arrays) -> Arrays:
        try:
            moved = inputs if seed is None else perturbation.perturb_inputs(inputs, seed)
            arguments = {name: wide(array) for name, array in moved.items()}
            outputs = feeding.run(lambda feeds: engine.run(feeds, spec["consts"]), arguments, draws)
            return {name: np.asarray(value) for name, value in outputs.items()}
        # A point that the reference refuses, for whatever reason, cannot be judged.
        except Exception as error:
            raise PointFailed(summary(error)) from error

    run_points(spec, record, run, failure="refused")
    record({"float32": sorted(getattr(engine, "float32", ()))})


def _change(spec: Record, seed: int | None) -> Engine:
    """The engine on the model with perturbed weights, and with more outputs."""
    if spec["engine"] in TORCHSCRIPT:
        from compiler.verify.reference.torch import TorchScript

        return TorchScript(spec["model"], perturbation=seed)
    if spec["engine"] in EXPORTED:
        from compiler.verify.reference.exported import ExportedProgram

        return ExportedProgram(spec["model"], perturbation=seed)
    import onnx

    model = onnx.load(spec["model"])
    if seed is not None:
        perturbation.perturb_weights(model, seed)
    indexed.show(model, spec.get("shown", ()))
    with tempfile.TemporaryDirectory() as folder:
        name = ONNX[0] if spec["engine"] == TFLITE else spec["engine"]
        return ENGINES[name](str(save_model(model, Path(folder))))


def wide(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An input as the reference takes it, which has float32 in place of narrower types."""
    return array.astype(np.float32) if array.dtype.name in STORAGE else array


if __name__ == "__main__":
    serve(run_reference)
