"""The values inside a model at one point: what the reference computes for them, and their symbolic
shapes.
"""

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx

from compiler.bisection.cuts import Array
from compiler.errors import CompileError
from compiler.ir import import_model
from compiler.ir.onnx.model.nodes import Graph
from compiler.verify.inputs import array_file
from relaxd.contract.dims.tensors import DTYPES, TensorSpec
from relaxd.contract.request import CompileRequest

_INLINE_BYTES = 1 << 30
_KINDS = {"float": "float32", "double": "float64"}


class Values:
    """ONNX Runtime on the whole model, without rewriting, with every value among its outputs.

    feed: the model's inputs at the point, those that the request fixes among them; tensors: the
    dtype of every value that is a tensor.
    """

    def __init__(self, graph: Graph, feed: Mapping[str, Array], scratch: Path) -> None:
        path = scratch / "values.onnx"
        onnx.save_model(
            expose(graph.model, (name for names in graph.gives for name in names)),
            path,
            save_as_external_data=graph.model.ByteSize() > _INLINE_BYTES,
        )
        self._session = session_of(str(path))
        self._feed = dict(feed)
        kinds = {output.name: dtype_of(output.type) for output in self._session.get_outputs()}
        self.tensors = {name: dtype for name, dtype in kinds.items() if dtype in DTYPES}

    def of(self, names: Iterable[str]) -> dict[str, Array]:
        """The values of that name; KeyError for one that is no tensor."""
        wanted = list(names)
        inner = [name for name in wanted if name not in self._feed]
        for name in inner:
            if name not in self.tensors:
                raise KeyError(name)
        values = dict(self._feed)
        if inner:
            values.update(zip(inner, evaluate(self._session, inner, self._feed), strict=True))
        return {name: np.asarray(values[name]) for name in wanted}


def session_of(model: str | bytes) -> Any:
    """ONNX Runtime on a path, or a file's bytes, without rewriting."""
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level = 4
    settings.add_session_config_entry("session.x64quantprecision", "1")
    return onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])


def evaluate(session: Any, names: Sequence[str], feed: Mapping[str, Array]) -> list[Array]:
    """The outputs of that name of ONNX Runtime's session.

    Its arrays are numpy's, which has no bfloat16: these go as bits.
    """
    from onnxruntime import OrtValue

    def to_value(array: Array) -> Any:
        if array.dtype != ml_dtypes.bfloat16:
            return OrtValue.ortvalue_from_numpy(array)
        bits = np.require(array_file.storable(array), requirements="C")
        return OrtValue.ortvalue_from_numpy_with_onnx_type(bits, onnx.TensorProto.BFLOAT16)

    def to_array(value: Any) -> Array:
        if value.data_type() != "tensor(bfloat16)":
            return np.asarray(value.numpy())
        size = value.tensor_size_in_bytes()
        return np.frombuffer(ctypes.string_at(value.data_ptr(), size), ml_dtypes.bfloat16).reshape(
            value.shape()
        )

    wide = {name: to_value(np.asarray(array)) for name, array in feed.items()}
    return [to_array(value) for value in session.run_with_ort_values(list(names), wide)]


def dtype_of(kind: str) -> str:
    """The dtype of ONNX Runtime's `tensor(float)`; nonsense for what is no tensor."""
    name = kind.removeprefix("tensor(").removesuffix(")")
    return _KINDS.get(name, name)


def expose(model: onnx.ModelProto, names: Iterable[str]) -> onnx.ModelProto:
    """The model with values of that name as outputs, after its own."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    own = {output.name for output in copy.graph.output}
    copy.graph.output.extend(
        onnx.ValueInfoProto(name=name) for name in names if name and name not in own
    )
    return copy


def typed_inputs(model: onnx.ModelProto, stored: Mapping[str, Array]) -> dict[str, Array]:
    """Arrays of an .npz, which holds the bits of bfloat16, in the dtypes of the model's inputs."""
    bfloats = {
        entry.name
        for entry in model.graph.input
        if entry.type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16
    }
    return {
        name: array_file.view_typed(array, "bfloat16") if name in bfloats else array
        for name, array in stored.items()
    }


def specs_of(
    model: onnx.ModelProto, names: Iterable[str], request: CompileRequest
) -> dict[str, TensorSpec]:
    """The values' dtypes and symbolic shapes, as the import finds them; nothing where it fails for
    a model that gives back its inner values.
    """
    try:
        imported = import_model(expose(model, names), request)
    except CompileError:
        return {}
    return {spec.name: spec for spec in (*imported.outputs, *imported.inputs)}
