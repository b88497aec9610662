"""Random operators of ONNX written with RandomUniformLike and ordinary operators: what the importer
compiles is what the reference runs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from compiler.ir.graph.draws import Draw, Law, stream_of
from compiler.ir.onnx.model.opsets import opset_of
from compiler.ir.onnx.model.walking import walk

LAWS = {
    "RandomNormal": Law.NORMAL,
    "RandomNormalLike": Law.NORMAL,
    "RandomUniform": Law.UNIFORM,
    "RandomUniformLike": Law.UNIFORM,
}
TRAINING_INPUT = 12
"""Of Dropout: since this opset an input decides whether elements are dropped."""

_FLOAT = onnx.TensorProto.FLOAT


def draw_of(proto: onnx.NodeProto, dtype: str) -> Draw:
    """The draw of a node of `LAWS`; nodes of equal `seed` attributes draw from one stream."""
    attributes = {a.name: helper.get_attribute_value(a) for a in proto.attribute}
    label = f"seed {attributes['seed']}" if "seed" in attributes else f"node {proto.output[0]}"
    law = LAWS[proto.op_type]
    if law is Law.NORMAL:
        start, spread = attributes.get("mean", 0.0), attributes.get("scale", 1.0)
    else:
        start = attributes.get("low", 0.0)
        spread = attributes.get("high", 1.0) - start
    return Draw(stream_of(label), law, dtype, start, spread)


def expand_random(proto: onnx.NodeProto, dtype: str, opset: int) -> list[onnx.NodeProto] | None:
    """The nodes that stand for one whose first input has that dtype, None for operators that are
    not random. Values inside are named after the node's first output.
    """
    write = _EXPANSIONS.get(proto.op_type) if is_random(proto, opset) else None
    if write is None:
        return None
    writer = _Writer(proto, dtype, opset)
    write(writer)
    return writer.nodes


def is_random(proto: onnx.NodeProto, opset: int) -> bool:
    """True for a node that may draw numbers."""
    if proto.domain not in ("", "ai.onnx"):
        return False
    if proto.op_type == "Dropout":
        return opset >= TRAINING_INPUT and len(proto.input) > 2
    return proto.op_type in LAWS or proto.op_type in _EXPANSIONS


def without_calls(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its functions written out where one of them draws numbers: every call must
    draw its own, and values inside a function have the same names in all of its calls.
    """
    if not any(
        is_random(proto, opset_of(function.opset_import))
        for function in model.functions
        for proto in walk(function.node)
    ):
        return model
    from onnx import inliner

    return inliner.inline_local_functions(model)


@dataclass
class _Writer:
    """The nodes so far; attributes are those of the node that they stand for."""

    proto: onnx.NodeProto
    dtype: str
    opset: int
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.attributes = {a.name: helper.get_attribute_value(a) for a in self.proto.attribute}

    @property
    def elements(self) -> int:
        """ONNX's number of the first input's dtype."""
        return helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))

    def name(self, index: int = 0) -> str:
        """The name of an output, made up where the node has none there."""
        declared = self.proto.output[index] if index < len(self.proto.output) else ""
        return declared or f"{self.proto.output[0]}/unused_{index}"

    def put(self, operator: str, *inputs: str, result: str = "", **attributes: Any) -> str:
        """Add a node; gives the name of its output."""
        output = result or f"{self.name()}/{len(self.nodes)}_{operator}"
        self.nodes.append(
            helper.make_node(operator, list(inputs), [output], name=output, **attributes)
        )
        return output

    def constant(self, value: Any) -> str:
        """Add a constant."""
        return self.put("Constant", value=numpy_helper.from_array(np.asarray(value)))

    def uniform(self, like: str, elements: int = _FLOAT) -> str:
        """Add numbers in [0, 1), as many as `like` has elements."""
        dtype_and_seed: dict[str, Any] = {"dtype": elements}
        if "seed" in self.attributes:
            dtype_and_seed["seed"] = float(self.attributes["seed"])
        return self.put("RandomUniformLike", like, **dtype_and_seed)

    def along(self, operator: str, value: str, axis: int, **attributes: Any) -> str:
        """Add an operator that takes its axes as an attribute before opset 13, then as an input."""
        if self.opset < 13:
            return self.put(operator, value, axes=[axis], **attributes)
        return self.put(operator, value, self.constant(np.array([axis])), **attributes)


def _bernoulli(w: _Writer) -> None:
    """1 with the probability that the element is."""
    elements = onnx.TensorProto.DOUBLE if w.dtype == "float64" else _FLOAT
    chance = w.put("Cast", w.proto.input[0], to=elements)
    hit = w.put("Less", w.uniform(chance, elements), chance)
    w.put("Cast", hit, result=w.name(), to=w.attributes.get("dtype", w.elements))


def _dropout(w: _Writer) -> None:
    """In training, zero with the probability `ratio`, else divided by that of not being zero."""
    x, ratio, training = w.proto.input[:3]
    loss = w.put("Cast", ratio, to=_FLOAT) if ratio else w.constant(np.float32(0.5))
    survives = w.put("Not", w.put("Less", w.uniform(x), loss))
    share = w.put("Cast", w.put("Sub", w.constant(np.float32(1)), loss), to=w.elements)
    zero = w.put("Cast", w.constant(np.float32(0)), to=w.elements)
    dropped = w.put("Where", survives, w.put("Div", x, share), zero)
    w.put("Where", training, dropped, x, result=w.name(0))
    w.put("Or", w.put("Not", training), survives, result=w.name(1))


def _multinomial(w: _Writer) -> None:
    """Classes drawn by their unnormalised log-probabilities: how many of the running totals of
    probability lie at or below a number in [0, 1).
    """
    logits = w.put("Cast", w.proto.input[0], to=_FLOAT)
    totals = w.put("CumSum", w.put("Softmax", logits, axis=1), w.constant(np.int64(1)))
    column = w.put("Gather", totals, w.constant(np.array([0])), axis=1)
    size = w.constant(np.array([1, w.attributes.get("sample_size", 1)]))
    samples = w.uniform(w.put("Expand", column, size))
    below = w.put("Less", w.along("Unsqueeze", samples, 2), w.along("Unsqueeze", totals, 1))
    passed = w.put("Cast", w.put("Not", below), to=_FLOAT)
    count = w.put("Gather", w.put("Shape", logits), w.constant(np.array([1])))
    # The last total is 1 but for rounding.
    last = w.put("Cast", w.put("Sub", count, w.constant(np.array([1]))), to=_FLOAT)
    index = w.put("Min", w.along("ReduceSum", passed, 2, keepdims=0), last)
    w.put("Cast", index, result=w.name(), to=w.attributes.get("dtype", onnx.TensorProto.INT32))


_EXPANSIONS: dict[str, Callable[[_Writer], None]] = {
    "Bernoulli": _bernoulli,
    "Dropout": _dropout,
    "Multinomial": _multinomial,
}
