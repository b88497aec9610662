"""The values inside a model at one point: what the reference computes for them, and their symbolic
shapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from compiler.bisection.cuts import Array
from compiler.bisection.graph import Graph
from compiler.errors import CompileError
from compiler.ir import import_model
from relaxd.contract.request import CompileRequest
from relaxd.contract.tensors import DTYPES, TensorSpec

_INLINE_BYTES = 1 << 30
_KINDS = {"float": "float32", "double": "float64"}


class Values:
    """ONNX Runtime on the whole model, without rewriting, with every value among its outputs.

    feed: the model's inputs at the point, those that the request fixes among them; tensors: the
    dtype of every value that is a tensor.
    """

    def __init__(self, graph: Graph, feed: Mapping[str, Array], scratch: Path) -> None:
        import onnxruntime

        onnxruntime.disable_telemetry_events()
        settings = onnxruntime.SessionOptions()
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        settings.log_severity_level = 4
        path = scratch / "values.onnx"
        onnx.save_model(
            exposed(graph.model, (name for names in graph.gives for name in names)),
            path,
            save_as_external_data=graph.model.ByteSize() > _INLINE_BYTES,
        )
        self._session = onnxruntime.InferenceSession(
            str(path), settings, providers=["CPUExecutionProvider"]
        )
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
        found = dict(self._feed)
        if inner:
            found.update(zip(inner, self._session.run(inner, self._feed), strict=True))
        return {name: np.asarray(found[name]) for name in wanted}


def dtype_of(kind: str) -> str:
    """The dtype of ONNX Runtime's `tensor(float)`; nonsense for what is no tensor."""
    name = kind.removeprefix("tensor(").removesuffix(")")
    return _KINDS.get(name, name)


def exposed(model: onnx.ModelProto, names: Iterable[str]) -> onnx.ModelProto:
    """The model with values of that name as outputs, after its own."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    own = {output.name for output in copy.graph.output}
    copy.graph.output.extend(
        onnx.ValueInfoProto(name=name) for name in names if name and name not in own
    )
    return copy


def fixed_inputs(model: onnx.ModelProto, consts: Mapping[str, Any]) -> dict[str, onnx.TensorProto]:
    """The inputs that the request fixes to a scalar, as tensors; axes of any size become 1."""
    found = {}
    for entry in model.graph.input:
        if entry.name not in consts:
            continue
        kind = entry.type.tensor_type
        shape = [axis.dim_value or 1 for axis in kind.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        array = np.full(shape, consts[entry.name]).astype(dtype)
        found[entry.name] = numpy_helper.from_array(array, entry.name)
    return found


def specs_of(
    model: onnx.ModelProto, names: Iterable[str], request: CompileRequest
) -> dict[str, TensorSpec]:
    """The values' dtypes and symbolic shapes, as the import finds them; nothing where it fails for
    a model that gives back its inner values.
    """
    try:
        imported = import_model(exposed(model, names), request)
    except CompileError:
        return {}
    return {spec.name: spec for spec in (*imported.outputs, *imported.inputs)}
