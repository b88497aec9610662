"""TFLite's own interpreter as the reference of a TFLite file, with its reference kernels: the saved
file itself, where `ai-edge-litert` is installed.
"""

import importlib.metadata
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler.ir.tflite.states import NEXT

if TYPE_CHECKING:
    import onnx

PACKAGE, MODULE = "ai-edge-litert", "ai_edge_litert"


def serves(model: "onnx.ModelProto") -> bool:
    """True if the interpreter is installed, and the model keeps no state, which it would not give
    from the outside.
    """
    installed = importlib.util.find_spec(MODULE) is not None
    return installed and not any(entry.name.endswith(NEXT) for entry in model.graph.output)


def beside(model: Path) -> Path:
    """The TFLite file that belongs to the ONNX model that was written of it."""
    return model.with_suffix(".tflite")


class Interpreter:
    """Runs the first graph; inputs and outputs are told by their positions, since the ONNX model
    may call them otherwise.

    model: the ONNX model, beside which the file lies.
    """

    def __init__(self, model: str) -> None:
        from ai_edge_litert import interpreter

        # The kernels of other resolvers round integers otherwise, and their delegates floats.
        self._interpreter = interpreter.Interpreter(
            str(beside(Path(model))),
            experimental_op_resolver_type=interpreter.OpResolverType.BUILTIN_REF,
            num_threads=1,
        )
        self._inputs, self._outputs = _interface_of(Path(model))
        self.name = f"{PACKAGE} {importlib.metadata.version(PACKAGE)}"

    def run(self, feeds: Mapping[str, Any], consts: Mapping[str, Any]) -> Mapping[str, Any]:
        """Outputs by name; as in compiler.verify.reference.onnx.Engine."""
        details = self._interpreter.get_input_details()
        for name, detail in zip(self._inputs, details, strict=True):
            self._interpreter.resize_tensor_input(detail["index"], feeds[name].shape)
        self._interpreter.allocate_tensors()
        for name, detail in zip(self._inputs, details, strict=True):
            self._interpreter.set_tensor(detail["index"], feeds[name])
        self._interpreter.invoke()
        results = self._interpreter.get_output_details()
        return {
            name: self._interpreter.get_tensor(detail["index"])
            for name, detail in zip(self._outputs, results, strict=True)
        }


def _interface_of(model: Path) -> tuple[list[str], list[str]]:
    import onnx

    graph = onnx.load(model, load_external_data=False).graph
    return [entry.name for entry in graph.input], [entry.name for entry in graph.output]
