"""Evaluates an ONNX model in float64, node by node: no engine has all operators in float64, and one
that is given a single node rewrites nothing around it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

Array: TypeAlias = np.ndarray[Any, Any]
Arrays: TypeAlias = dict[str, Any]
Engine: TypeAlias = Callable[[onnx.ModelProto, Arrays], Sequence[Any]]
"""Computes a model of one node from its operands; raises any exception where it cannot."""

_SHORT_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
_SHORT_FLOAT_NAMES = ("float32", "float16", "bfloat16")


def by_runtime(model: onnx.ModelProto, feed: Arrays) -> Sequence[Any]:
    """ONNX Runtime, on one thread and without rewriting."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    outputs: Sequence[Any] = session.run(None, feed)
    return outputs


def by_definition(model: onnx.ModelProto, feed: Arrays) -> Sequence[Any]:
    """onnx's evaluator, which shares no code with ONNX Runtime, with operators of ours."""
    from onnx.reference import ReferenceEvaluator

    from compiler.verify.reference.stand_in import OPERATORS

    outputs = ReferenceEvaluator(model, new_ops=list(OPERATORS)).run(None, feed)
    return [value if isinstance(value, list) else np.asarray(value) for value in outputs]


def by_window(model: onnx.ModelProto, feed: Arrays) -> Sequence[Any]:
    """Convolutions as one matrix product for each position of the window; raises
    NotImplementedError for any other operator. onnx's evaluator takes minutes for an image.
    """
    (node,) = model.graph.node
    if node.op_type != "Conv" or node.domain not in ("", "ai.onnx"):
        raise NotImplementedError(node.op_type)
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    x, weight = (feed[name] for name in node.input[:2])
    bias = feed[node.input[2]] if len(node.input) > 2 and node.input[2] else None
    return [_convolve(x, weight, bias, attributes)]


def in_float32(model: onnx.ModelProto, feed: Arrays) -> Sequence[Any]:
    """ONNX Runtime in float32: quantized operators and some others know no float64."""
    known = {name: _cast(value, "float64", "float32") for name, value in feed.items()}
    return [
        _cast(output, "float32", "float64")
        for output in by_runtime(model_of_node(model.graph.node[0], known, model), known)
    ]


EXACT: tuple[Engine, ...] = (by_window, by_runtime, by_definition, in_float32)
DEFINITION: tuple[Engine, ...] = (by_definition, by_window, by_runtime, in_float32)
"""ONNX Runtime computes float64 by the same code as float32, faults included: this order asks it
last.
"""


class Float64:
    """An engine as compiler.verify.reference.onnx.Engine.

    float32: the operators that no engine knew in float64 so far.
    """

    def __init__(self, path: str, engines: Sequence[Engine] = EXACT) -> None:
        from onnx import inliner

        self._model = onnx.load(path)
        if self._model.functions:
            self._model = inliner.inline_local_functions(self._model)
        self._engines = engines
        self.name = "float64"
        self.float32: set[str] = set()

    def run(self, feeds: Mapping[str, Any], consts: Mapping[str, Any]) -> Mapping[str, Any]:
        """Outputs by name; floats are float64."""
        from compiler.ir.onnx.model.item_names import join_items, split_items

        inputs = {info.name: info for info in self._model.graph.input}
        fixed = {name: _fill(inputs[name], consts[name]) for name in consts if name in inputs}
        feed = join_items({**feeds, **fixed}, inputs)
        names = [output.name for output in self._model.graph.output]
        values = values_of(self._model, feed, self._engines, keep=names, note=self._note)
        return split_items({name: values[name] for name in names})

    def _note(self, node: onnx.NodeProto, engine: Engine) -> None:
        if engine is in_float32:
            self.float32.add(node.op_type)


def values_of(
    model: onnx.ModelProto,
    feed: Mapping[str, Any],
    engines: Sequence[Engine],
    *,
    wide: bool = True,
    keep: Sequence[str] | None = None,
    note: Callable[[onnx.NodeProto, Engine], None] = lambda node, engine: None,
) -> Arrays:
    """Every value of the graph by name, those of `keep` alone where it is given; of the engines,
    the first that can computes a node. Raises RuntimeError where none can.

    wide: floats of fewer bits are float64; else each node is computed as it is. note: hears which
    engine computed a node.
    """
    widen: Callable[[Any], Any] = _widen if wide else lambda value: value
    values: Arrays = {name: widen(value) for name, value in feed.items() if value is not None}
    for constant in model.graph.initializer:
        values.setdefault(constant.name, widen(numpy_helper.to_array(constant)))
    last = _last_uses(model.graph) if keep is not None else {}
    retained = set(keep or ())
    for index, node in enumerate(model.graph.node):
        known = {name: values[name] for name in operands_of(node) if name in values}
        alone = model_of_node(widen_node(node) if wide else node, known, model)
        # ONNX Runtime 1.31 keeps the axis when it reduces nothing over a negative one.
        empty = node.op_type.startswith("Reduce") and not all(
            value.size for value in known.values() if isinstance(value, np.ndarray)
        )
        results, engine = _compute(alone, known, (by_definition, *engines) if empty else engines)
        note(node, engine)
        # Engines give the outputs that have names.
        named = zip(filter(None, node.output), results, strict=False)
        values.update((name, widen(result)) for name, result in named)
        for name in last.get(index, ()):
            if name not in retained:
                values.pop(name, None)
    return values


def operands_of(node: onnx.NodeProto) -> set[str]:
    """The names that the node reads, its subgraphs' included."""
    names = {name for name in node.input if name}
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            names |= _outer_names(attribute.g)
    return names


def _outer_names(graph: onnx.GraphProto) -> set[str]:
    own = {name for inner in graph.node for name in inner.output}
    own |= {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer}
    names = {name for inner in graph.node for name in operands_of(inner)}
    return (names | {info.name for info in graph.output}) - own


def model_of_node(node: onnx.NodeProto, known: Arrays, model: onnx.ModelProto) -> onnx.ModelProto:
    """A model of the one node, whose operands are its inputs; opsets are those of the model."""
    infos = [_info(name, value) for name, value in known.items()]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    graph = helper.make_graph([node], "node", infos, outputs)
    return helper.make_model(
        graph, opset_imports=model.opset_import, ir_version=min(model.ir_version or 9, 10)
    )


def widen_node(node: onnx.NodeProto) -> onnx.NodeProto:
    """The node with float64 in its constants, its casts to float32, and its subgraphs. Casts to
    fewer bits round, as the model wants it.
    """
    wide = onnx.NodeProto()
    wide.CopyFrom(node)
    _widen_attributes(wide)
    return wide


def _widen_attributes(node: onnx.NodeProto) -> None:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.TENSOR:
            _widen_tensor(attribute.t)
        if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
            attribute.i = TensorProto.DOUBLE
        if attribute.type == AttributeProto.GRAPH:
            _widen_graph(attribute.g)


def _widen_graph(graph: onnx.GraphProto) -> None:
    for info in (*graph.input, *graph.output, *graph.value_info):
        if info.type.tensor_type.elem_type in _SHORT_FLOATS:
            info.type.tensor_type.elem_type = TensorProto.DOUBLE
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for node in graph.node:
        _widen_attributes(node)


def _widen_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type in _SHORT_FLOATS:
        array = numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _widen(value: Any) -> Any:
    if isinstance(value, list):
        return [_widen(item) for item in value]
    array = np.asarray(value)
    return array.astype(np.float64) if array.dtype.name in _SHORT_FLOAT_NAMES else array


def _cast(value: Any, source: str, target: str) -> Any:
    if isinstance(value, list):
        return [_cast(item, source, target) for item in value]
    return value.astype(target) if value.dtype == source else value


def _info(name: str, value: Any) -> onnx.ValueInfoProto:
    if isinstance(value, list):
        element = helper.np_dtype_to_tensor_dtype(value[0].dtype) if value else TensorProto.DOUBLE
        return helper.make_tensor_sequence_value_info(name, element, None)
    return helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
    )


def _fill(info: onnx.ValueInfoProto, value: Any) -> Array:
    """A scalar that the request fixes, in the input's shape and dtype."""
    kind = info.type.tensor_type
    shape = [axis.dim_value or 1 for axis in kind.shape.dim]
    return np.full(shape, value, helper.tensor_dtype_to_np_dtype(kind.elem_type))


def _last_uses(graph: onnx.GraphProto) -> dict[int, list[str]]:
    """By the index of a node, the values that no later one reads."""
    last: dict[str, int] = {}
    for index, node in enumerate(graph.node):
        last.update((name, index) for name in (*operands_of(node), *node.output) if name)
    result: dict[int, list[str]] = {}
    for name, index in last.items():
        result.setdefault(index, []).append(name)
    return result


def _compute(
    model: onnx.ModelProto, feed: Arrays, engines: Sequence[Engine]
) -> tuple[Sequence[Any], Engine]:
    """The first engine's results; raises RuntimeError where each has failed."""
    reasons = []
    for engine in engines:
        try:
            return engine(model, feed), engine
        # Engines raise whatever their kernels do for an operator or a dtype that they lack.
        except Exception as error:
            reasons.append(f"{engine.__name__}: {error}")
    raise RuntimeError(f"{model.graph.node[0].op_type}: {'; '.join(reasons)}"[:300])


def _convolve(x: Array, weight: Array, bias: Array | None, attributes: Mapping[str, Any]) -> Array:
    """x: [n, c, *space]; weight: [m, c / groups, *window]."""
    rank, groups = x.ndim - 2, int(attributes.get("group", 1))
    window = weight.shape[2:]
    strides, dilations = (attributes.get(name) or [1] * rank for name in ("strides", "dilations"))
    extents = [dilation * (size - 1) + 1 for dilation, size in zip(dilations, window, strict=True)]
    pads = _pads(attributes, x.shape[2:], strides, extents)
    padded = np.pad(x, [(0, 0), (0, 0), *pads])
    space = [
        (size - extent) // stride + 1
        for size, extent, stride in zip(padded.shape[2:], extents, strides, strict=True)
    ]
    parts = padded.reshape(x.shape[0], groups, -1, *padded.shape[2:])
    factors = weight.reshape(groups, -1, *weight.shape[1:])
    out = np.zeros((x.shape[0], groups, factors.shape[1], math.prod(space)), x.dtype)
    for tap in np.ndindex(*window):
        taken = tuple(
            slice(index * dilation, index * dilation + stride * (size - 1) + 1, stride)
            for index, dilation, stride, size in zip(tap, dilations, strides, space, strict=True)
        )
        columns = parts[(slice(None),) * 3 + taken].reshape(*parts.shape[:3], -1)
        out += np.matmul(factors[(slice(None),) * 3 + tap], columns)
    result = out.reshape(x.shape[0], -1, *space)
    return result if bias is None else result + bias.reshape(-1, *[1] * rank)


def _pads(
    attributes: Mapping[str, Any],
    sizes: Sequence[int],
    strides: Sequence[int],
    extents: Sequence[int],
) -> Iterator[tuple[int, int]]:
    """Before and after each axis of the space."""
    auto = attributes.get("auto_pad", b"NOTSET")
    rank = len(sizes)
    if auto in (b"NOTSET", b"VALID"):
        pads = attributes.get("pads") or [0] * (2 * rank)
        yield from ((pads[axis], pads[axis + rank]) for axis in range(rank))
        return
    for size, stride, extent in zip(sizes, strides, extents, strict=True):
        total = max((math.ceil(size / stride) - 1) * stride + extent - size, 0)
        small = total // 2
        yield (small, total - small) if auto == b"SAME_UPPER" else (total - small, small)
