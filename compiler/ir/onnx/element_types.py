"""Which element types an operator takes for each input: those of ONNX's schemas, in any of its
versions.
"""

from collections.abc import Iterator
from functools import cache

import onnx
from onnx import defs

from compiler.ir.graph.values import Known, Tensor
from compiler.ir.onnx.model.dtypes import CARRIED
from compiler.ir.onnx.node import Node
from compiler.ir.ops.quantized.small_types import is_small

_DOMAINS = ("", "ai.onnx")
_CODES: dict[str, int] = dict(onnx.TensorProto.DataType.items())
"""Of the element types, by the names that schemas give them in capitals."""


def check(node: Node) -> None:
    """Fail where an operator of ONNX's own domain is given an element type that none of its
    versions takes there, or two where its schema has one.
    """
    if node.proto.domain not in _DOMAINS or not defs.has(node.proto.op_type):
        return
    bound: dict[str, str] = {}
    for index, value in enumerate(node.inputs):
        taken = _taken(node.proto.op_type, index)
        if taken is None or not isinstance(value, Known | Tensor):
            continue
        name, variable, dtypes = taken
        dtype = _dtype(node, value)
        if is_small(dtype):
            # Those are moved where the schemas do not know them yet.
            continue
        if dtype not in dtypes:
            node.fail(
                f"{node.op} takes no {dtype} as {name}",
                reason="dtype",
                hint=f"cast it to {' or '.join(sorted(dtypes))}",
            )
        other = bound.setdefault(variable, dtype)
        if variable and other != dtype:
            node.fail(
                f"{other} and {dtype} in one {node.op}",
                reason="dtype",
                hint="cast one of them",
            )


def _dtype(node: Node, value: Known | Tensor) -> str:
    """The model's dtype: rows of an in-place cache may be stored in another, of fewer bits."""
    buffer = node.builder.buffers.get(value.expr) if isinstance(value, Tensor) else None
    return value.dtype if buffer is None else buffer.dtype


@cache
def _taken(operator: str, index: int) -> tuple[str, str, frozenset[str]] | None:
    """Name, type variable and dtypes of an operator's input; the variable is empty where no other
    input shares it. None where the schema gives no tensors.
    """
    dtypes: set[str] = set()
    formal = _formal(defs.get_schema(operator), index)
    if formal is None:
        return None
    for schema in _versions(operator):
        other_formal = _formal(schema, index)
        if other_formal is not None:
            dtypes.update(_dtypes(other_formal))
    variable = formal.type_str if formal.is_homogeneous and "(" not in formal.type_str else ""
    return (formal.name, variable, frozenset(dtypes)) if dtypes else None


def _versions(operator: str) -> Iterator[defs.OpSchema]:
    version = defs.get_schema(operator).since_version
    while True:
        schema = defs.get_schema(operator, version)
        yield schema
        version = schema.since_version - 1
        if version < 1 or not defs.has(operator, version):
            return


def _formal(schema: defs.OpSchema, index: int) -> defs.OpSchema.FormalParameter | None:
    """The schema's input of an index; the last of a variadic operator has all that follow."""
    inputs = schema.inputs
    if index < len(inputs):
        return inputs[index]
    variadic = inputs and inputs[-1].option == defs.OpSchema.FormalParameterOption.Variadic
    return inputs[-1] if variadic else None


def _dtypes(formal: defs.OpSchema.FormalParameter) -> Iterator[str]:
    """The dtypes that we carry among the tensors of an input's types."""
    for kind in formal.types:
        if kind.startswith("tensor("):
            code = _CODES.get(kind.removeprefix("tensor(").removesuffix(")").upper())
            if code in CARRIED:
                yield CARRIED[code]
