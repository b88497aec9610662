"""Bodies of operators that are functions: those of the model, and those that the ONNX schemas
define.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import defs

from compiler.ir.onnx.model.lists import Content, Items, Stacked

if TYPE_CHECKING:
    from compiler.ir.onnx.scope import Model


def function_of(
    model: Model, proto: onnx.NodeProto, inputs: Sequence[Content | None]
) -> onnx.FunctionProto | None:
    """The function that a node calls, None where its operator has no body."""
    local = model.functions.get((proto.domain, proto.op_type, getattr(proto, "overload", "")))
    return local if local is not None else _schema_body(model, proto, inputs)


def _schema_body(
    model: Model, proto: onnx.NodeProto, inputs: Sequence[Content | None]
) -> onnx.FunctionProto | None:
    version = model.opset(proto.domain)
    domain = "" if proto.domain == "ai.onnx" else proto.domain
    if not defs.has(proto.op_type, version, domain):
        return None
    schema = defs.get_schema(proto.op_type, version, domain)
    if schema.has_function:
        body = onnx.FunctionProto()
        body.CopyFrom(schema.function_body)
        present = {attribute.name for attribute in proto.attribute}
        body.attribute_proto.extend(
            a.default_value
            for name, a in schema.attributes.items()
            if name not in present and a.default_value.type
        )
        return _versioned(body, version, domain)
    if schema.has_context_dependent_function:
        types = [_type_of(value) for value in inputs]
        versions = [
            v for v in schema.context_dependent_function_opset_versions if v <= version
        ] or [version]
        text = schema.get_context_dependent_function_with_opset_version(
            max(versions), proto.SerializeToString(), types
        )
        body = onnx.FunctionProto()
        body.ParseFromString(text)
        return _versioned(body, version, domain)
    return None


def _versioned(body: onnx.FunctionProto, version: int, domain: str) -> onnx.FunctionProto:
    """A schema's body names the opset it was written for; without one it follows the model's."""
    if not body.opset_import:
        body.opset_import.append(onnx.helper.make_opsetid(domain, version))
    return body


def _type_of(value: Content | None) -> bytes:
    if value is None or isinstance(value, (Items, Stacked)):
        return onnx.TypeProto().SerializeToString()
    code = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype))
    shape = [extent if isinstance(extent, int) else None for extent in value.shape]
    return onnx.helper.make_tensor_type_proto(code, shape).SerializeToString()
