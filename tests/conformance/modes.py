"""What a request declares about a case's inputs: nothing, or every axis a dim of its own."""

from enum import Enum
from itertools import count

import onnx

from compiler.ir.onnx.scope import DTYPES
from relaxd.contract.request import CompileRequest
from tests.conformance.cases import Case

_OPTIONS = {"verify": False, "profile": False}


class Mode(Enum):
    """static: the shapes as the case gives them; dynamic: every fixed axis of every input a dim of its own, from 0 up."""

    STATIC = "static"
    DYNAMIC = "dynamic"


def request(case: Case, mode: Mode) -> CompileRequest:
    """The compile request; one-dimensional int64 inputs stay as they are: they carry shapes and axes, so their length is a rank."""
    if mode is Mode.STATIC:
        return CompileRequest.of(options=_OPTIONS)
    taken = {dim.dim_param for value in case.inputs for dim in value.type.tensor_type.shape.dim}
    fresh = (name for number in count() if (name := f"d{number}") not in taken)
    inputs, dims = {}, {}
    for value in case.inputs:
        if not _loosened(value):
            continue
        axes = []
        for dim in value.type.tensor_type.shape.dim:
            axes.append(dim.dim_param if dim.dim_param.isidentifier() else next(fresh))
            dims[axes[-1]] = (0, None)
        inputs[value.name] = f"{DTYPES[value.type.tensor_type.elem_type]}[{','.join(axes)}]"
    return CompileRequest.of(inputs=inputs, dims=dims, options=_OPTIONS)


def _loosened(value: onnx.ValueInfoProto) -> bool:
    """Whether the input is a tensor with axes that we can declare; what else there is, the compiler is to refuse by itself."""
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type") or tensor.elem_type not in DTYPES or not tensor.shape.dim:
        return False
    return not (len(tensor.shape.dim) == 1 and tensor.elem_type == onnx.TensorProto.INT64)
