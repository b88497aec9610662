"""Feeds the reference the numbers that the library draws: inputs stand for a model's random nodes.

Which numbers a node gets depends on its shape in nothing but their count, so that an input is a
long row of them, of which the graph takes what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler.ir.graph.draws import SEED, Draw
from compiler.verify.reference.numbers import numbers

if TYPE_CHECKING:
    import onnx

COUNTS = (1 << 14, 1 << 19, 1 << 24)
"""Numbers in a row; the graph fails where it needs more, and is run again with the next."""

_ROW = "relaxd.row"
_TOO_SHORT = (_ROW, "cannot reshape array")
"""By what the error of a row with too few numbers is known: ONNX Runtime names the node."""

_OLDEST = 11
"""No earlier opset has operators for what the graph does with a row."""


def replace_random(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, Draw]] | None:
    """A copy of the model that draws nothing, and the numbers that its new inputs stand for; None
    for a model without random nodes. Raises ImportFailed for a model of an old opset that cannot be
    rewritten.
    """
    from compiler.ir.onnx.model.expansions import is_random, without_calls
    from compiler.ir.onnx.model.opsets import opset_of
    from compiler.ir.onnx.model.walking import walk

    flat = without_calls(model)
    opset = opset_of(flat.opset_import)
    if not any(is_random(proto, opset) for proto in walk(flat.graph.node)):
        return None
    rewrite = _Rewrite(*_typed(flat))
    rewrite.graph(rewrite.model.graph)
    rewrite.declare()
    return rewrite.model, rewrite.draws


def run(
    engine: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    inputs: Mapping[str, Any],
    draws: Mapping[str, Draw],
) -> Mapping[str, Any]:
    """Call the engine with the inputs, the seed among them replaced by the numbers of `draws`."""
    feeds = {name: array for name, array in inputs.items() if name != SEED.name}
    if not draws:
        return engine(feeds)
    seed = int(inputs.get(SEED.name, 0))
    for count in COUNTS:
        rows = {name: numbers(draw, seed, count) for name, draw in draws.items()}
        try:
            return engine({**feeds, **rows})
        except Exception as error:
            if count == COUNTS[-1] or not any(sign in str(error) for sign in _TOO_SHORT):
                raise
    raise AssertionError


def _typed(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, int], int]:
    """A copy of the model, the element types of its values, and its opset, 11 or later."""
    from onnx import shape_inference

    from compiler.ir.onnx.model.opsets import convert_opset, opset_of

    copy = convert_opset(shape_inference.infer_shapes(model), _OLDEST)
    copy = shape_inference.infer_shapes(copy)
    return copy, dict(_types(copy.graph)), opset_of(copy.opset_import)


def _types(graph: onnx.GraphProto) -> Iterable[tuple[str, int]]:
    for value in (*graph.input, *graph.value_info, *graph.output):
        yield value.name, value.type.tensor_type.elem_type
    for tensor in graph.initializer:
        yield tensor.name, tensor.data_type
    for proto in graph.node:
        for attribute in proto.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _types(inner)


@dataclass
class _Rewrite:
    """The model under work, and what its new inputs are fed."""

    model: onnx.ModelProto
    types: Mapping[str, int]
    opset: int
    draws: dict[str, Draw] = field(default_factory=dict)

    def graph(self, graph: onnx.GraphProto) -> None:
        """Replace the random nodes of a graph and of those inside it."""
        nodes = [new for proto in graph.node for new in self._replace(proto)]
        del graph.node[:]
        graph.node.extend(nodes)

    def declare(self) -> None:
        """Add the new inputs to the model."""
        from onnx import helper

        for name, draw in self.draws.items():
            kind = _code(_row_dtype(draw))
            self.model.graph.input.append(helper.make_tensor_value_info(name, kind, [None]))

    def _replace(self, proto: onnx.NodeProto) -> list[onnx.NodeProto]:
        from compiler.ir.onnx.model.expansions import LAWS, expand_random

        for attribute in proto.attribute:
            # To write to a graph that is not there would make it.
            for inner in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
                self.graph(inner)
        dtype = self._dtype(proto.input[0]) if proto.input else "float32"
        nodes = expand_random(proto, dtype, self.opset) or [proto]
        return [
            new for node in nodes for new in (self._fed(node) if node.op_type in LAWS else [node])
        ]

    def _dtype(self, name: str) -> str:
        from onnx import helper

        code = self.types.get(name, 0)
        return helper.tensor_dtype_to_np_dtype(code).name if code else "float32"

    def _fed(self, proto: onnx.NodeProto) -> list[onnx.NodeProto]:
        """The nodes that cut a random node's numbers out of a row and give them its shape."""
        from onnx import helper

        from compiler.ir.onnx.model.expansions import draw_of

        attributes = {a.name: helper.get_attribute_value(a) for a in proto.attribute}
        like = proto.input[0] if proto.input else ""
        dtype = (
            helper.tensor_dtype_to_np_dtype(attributes["dtype"]).name
            if "dtype" in attributes
            else self._dtype(like)
        )
        row, name = f"{_ROW}.{len(self.draws)}", proto.output[0]
        self.draws[row] = draw_of(proto, dtype)
        shape = _constant(f"{name}/shape", attributes.get("shape", []))
        if like:
            shape = helper.make_node("Shape", [like], [f"{name}/shape"])
        zero = {"allowzero": 1} if self.opset >= 14 else {}
        return [
            shape,
            helper.make_node("ReduceProd", [f"{name}/shape"], [f"{name}/count"], keepdims=1),
            _constant(f"{name}/first", [0]),
            helper.make_node("Slice", [row, f"{name}/first", f"{name}/count"], [f"{name}/cut"]),
            helper.make_node(
                "Reshape", [f"{name}/cut", f"{name}/shape"], [f"{name}/wide"], name=row, **zero
            ),
            helper.make_node("Cast", [f"{name}/wide"], [name], to=_code(dtype)),
        ]


def _constant(name: str, values: list[int]) -> onnx.NodeProto:
    from onnx import helper, numpy_helper

    value = numpy_helper.from_array(np.array(values, np.int64))
    return helper.make_node("Constant", [], [name], value=value)


def _row_dtype(draw: Draw) -> str:
    return "float64" if draw.dtype == "float64" else "float32"


def _code(dtype: str) -> int:
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
