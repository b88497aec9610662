"""Imports nodes that C code of the user's computes: a tensor program that calls its function."""

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import tirx

from compiler.ir.graph import loop_programs
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.programs import CALLS_OUT
from compiler.ir.graph.values import Value
from compiler.ir.onnx.node import Node
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent
from compiler.ir.shapes.symbols import extent_of
from relaxd.contract.dims.tensors import TensorSpec
from relaxd.contract.operators import CustomOperator


def compute(
    b: Builder, node: Node, operator: CustomOperator, defaults: Mapping[str, Any]
) -> list[Value]:
    """The outputs of the operator's function; a run fails where it returns anything but 0.

    defaults: of attributes that the node leaves out.
    """
    inputs = _inputs(node, operator)
    dims = _bind_dims(b, node, operator, inputs)
    shapes = [
        [b.facts.simplify(extent_of(axis, dims.__getitem__)) for axis in spec.shape]
        for spec in operator.outputs
    ]
    attributes = [_attribute(node, name, kind, defaults) for name, kind in operator.attributes]

    message = f"the code of {operator.name} could not compute"
    success = ex.prim(b.checks.number(message))

    def call(buffers: list[Any], results: list[Any]) -> None:
        *outputs, verdict = results
        status = tirx.call_extern(
            "int32",
            operator.symbol,
            *(buffer.data for buffer in (*buffers, *outputs)),
            *(ex.prim(dims[name]) for name in operator.dims),
            *attributes,
        )
        verdict[0] = tirx.Select(status == tirx.const(0, "int32"), success, ex.prim(0))

    flat = [layout.reshape(b, value, [_count(b, value.shape)]) for value in inputs]
    forms = [
        ((_count(b, shape),), spec.dtype)
        for shape, spec in zip(shapes, operator.outputs, strict=True)
    ]
    *results, verdict = loop_programs.program(
        b,
        call,
        [*forms, ((1,), "int64")],
        *flat,
        name=operator.function,
        attrs={CALLS_OUT: operator.name},
    )
    b.verify(verdict, message)
    return [layout.reshape(b, result, shape) for result, shape in zip(results, shapes, strict=True)]


def _inputs(node: Node, operator: CustomOperator) -> list[Value]:
    if len(node.inputs) != len(operator.inputs):
        node.fail(
            f"the node has {len(node.inputs)} inputs, its code takes {len(operator.inputs)}",
            reason="custom_operator",
        )
    values = [node.value(index) for index in range(len(operator.inputs))]
    for value, spec in zip(values, operator.inputs, strict=True):
        if (value.dtype, len(value.shape)) != (spec.dtype, len(spec.shape)):
            node.fail(
                f"the input {spec.name} is {value.dtype} of {len(value.shape)} axes, "
                f"its code takes {spec.text}",
                reason="custom_operator",
            )
    return values


def _bind_dims(
    b: Builder, node: Node, operator: CustomOperator, inputs: Sequence[Value]
) -> dict[str, Extent]:
    """The extents of the operator's dims; axes that share one, and fixed axes, are checked."""
    dims: dict[str, Extent] = {}
    for value, spec in zip(inputs, operator.inputs, strict=True):
        for position, (axis, extent) in enumerate(zip(spec.shape, value.shape, strict=True)):
            expected = axis.size if axis.symbol is None else dims.setdefault(axis.symbol, extent)
            assert expected is not None
            b.same(extent, expected, _mismatch(node, spec, position))
    return dims


def _mismatch(node: Node, spec: TensorSpec, position: int) -> str:
    return f"{node.op}: axis {position} of the input {spec.name} is not that of {spec.text}"


def _attribute(node: Node, name: str, kind: str, defaults: Mapping[str, Any]) -> Any:
    value = node.attr(name, defaults.get(name))
    if isinstance(value, bool) or not isinstance(value, int if kind == "int" else (int, float)):
        node.fail(
            f"the attribute {name} is {value!r}, its code takes {kind}", reason="custom_operator"
        )
    return tirx.const(value, "int64") if kind == "int" else tirx.const(float(value), "float64")


def _count(b: Builder, shape: Sequence[Extent]) -> Extent:
    """Elements of a tensor."""
    return b.facts.simplify(ex.prod(shape))  # type: ignore[no-any-return]
