"""A graph in float64, node by node: no engine has all operators in float64, and one that takes a
node alone rewrites nothing around it.
"""

from collections.abc import Callable, Sequence

import numpy as np
import onnx
import onnxruntime
from onnx import AttributeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.fuzz.case import OPSETS, Array, taken_by

Arrays = dict[str, Array]
Engine = Callable[[onnx.ModelProto, Arrays], Sequence[Array]]


def by_runtime(model: onnx.ModelProto, feed: Arrays) -> Sequence[Array]:
    """ONNX Runtime, on one thread and without rewriting."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    outputs: Sequence[Array] = session.run(None, feed)
    return outputs


def by_definition(model: onnx.ModelProto, feed: Arrays) -> Sequence[Array]:
    """onnx.reference."""
    return [np.asarray(output) for output in ReferenceEvaluator(model).run(None, feed)]


def narrowed(model: onnx.ModelProto, feed: Arrays) -> Sequence[Array]:
    """ONNX Runtime in float32: quantised operators and some others know no float64."""
    known = {
        name: array.astype("float32") if array.dtype == np.float64 else array
        for name, array in feed.items()
    }
    return [
        output.astype("float64") if output.dtype == np.float32 else output
        for output in by_runtime(_alone(model.graph.node[0], known, model.opset_import), known)
    ]


def run(model: onnx.ModelProto, feed: Arrays, engines: Sequence[Engine]) -> list[Array]:
    """The outputs for the feed; of the engines, the first that knows a node computes it."""
    values = values_of(model, feed, engines)
    return [values[output.name] for output in model.graph.output]


def values_of(
    model: onnx.ModelProto, feed: Arrays, engines: Sequence[Engine], *, wide: bool = True
) -> Arrays:
    """As `run`, every value of the graph by name.

    wide: in float64 what is float32; else each node is computed as it is.
    """
    values: Arrays = {name: _wider(array) if wide else array for name, array in feed.items()}
    for constant in model.graph.initializer:
        array = numpy_helper.to_array(constant)
        values[constant.name] = _wider(array) if wide else array
    for node in model.graph.node:
        known = {name: values[name] for name in taken_by(node)}
        # ONNX Runtime 1.31 keeps the axis when it reduces nothing over a negative one.
        empty = node.op_type.startswith("Reduce") and not all(a.size for a in known.values())
        first = (by_definition, *engines) if empty else engines
        alone = _alone(_widened(node) if wide else node, known, model.opset_import)
        results = _computed(alone, known, first)
        values.update(
            (name, result) for name, result in zip(node.output, results, strict=True) if name
        )
    return values


def _wider(array: Array) -> Array:
    return array.astype("float64") if array.dtype == np.float32 else array


def _computed(model: onnx.ModelProto, feed: Arrays, engines: Sequence[Engine]) -> Sequence[Array]:
    reasons = []
    for engine in engines:
        try:
            return engine(model, feed)
        except Exception as error:
            reasons.append(f"{engine.__name__}: {error}")
    raise RuntimeError(f"{model.graph.node[0].op_type}: {'; '.join(reasons)}"[:300])


def _alone(
    node: onnx.NodeProto, known: Arrays, opsets: Sequence[onnx.OperatorSetIdProto] = OPSETS
) -> onnx.ModelProto:
    """A model of the one node, whose operands are its inputs."""
    infos = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in known.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    graph = helper.make_graph([node], "node", infos, outputs)
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def _widened(node: onnx.NodeProto) -> onnx.NodeProto:
    """The node with float64 for float32 in its constant, its cast, and its graphs' inputs."""
    wide = onnx.NodeProto()
    wide.CopyFrom(node)
    for attribute in wide.attribute:
        if attribute.type == AttributeProto.TENSOR and attribute.t.data_type == TensorProto.FLOAT:
            wider = numpy_helper.to_array(attribute.t).astype("float64")
            attribute.t.CopyFrom(numpy_helper.from_array(wider, attribute.t.name))
        if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
            attribute.CopyFrom(helper.make_attribute("to", int(TensorProto.DOUBLE)))
        for info in attribute.g.input:
            if info.type.tensor_type.elem_type == TensorProto.FLOAT:
                info.type.tensor_type.elem_type = TensorProto.DOUBLE
    return wide
