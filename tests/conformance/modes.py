"""Declare a case's inputs: nothing, or every axis a dim of its own."""

from collections.abc import Iterator
from enum import Enum
from itertools import count
from typing import Any

import numpy as np
import onnx

from compiler.ir.onnx.model.dtypes import CARRIED
from relaxd.contract.request import CompileRequest
from tests.conformance.cases import Case

_OPTIONS = {"verify": False, "profile": False}


class Mode(Enum):
    """static: the shapes as the case gives them; dynamic: every fixed axis of every input a dim of
    its own, from 0 up.
    """

    STATIC = "static"
    DYNAMIC = "dynamic"


def request(case: Case, mode: Mode) -> CompileRequest:
    """The compile request; one-dimensional int64 inputs keep their axes: they carry shapes and
    axes, so their length is a rank.

    Static, too, an axis of 0 is declared, which in a file mostly means an unknown one, and so is an
    axis left open.
    """
    inputs, dims = {}, {}
    taken = {dim.dim_param for value in case.inputs for dim in value.type.tensor_type.shape.dim}
    fresh = (name for number in count() if (name := f"d{number}") not in taken)
    for value in _tensors(case):
        tensor = value.type.tensor_type
        if (
            not value.type.HasField("tensor_type")
            or tensor.elem_type not in CARRIED
            or not tensor.HasField("shape")
        ):
            # The compiler is to refuse it by itself.
            continue
        loosened = mode is Mode.DYNAMIC and not (
            len(tensor.shape.dim) == 1 and tensor.elem_type == onnx.TensorProto.INT64
        )
        if not loosened and value in case.inputs and all(d.dim_value for d in tensor.shape.dim):
            continue
        axes = [_axis(dim, loosened, fresh) for dim in tensor.shape.dim]
        dims.update({axis: (0, None) for axis in axes if not axis.isdigit()})
        inputs[value.name] = f"{CARRIED[tensor.elem_type]}[{','.join(axes)}]"
    return CompileRequest.of(inputs=inputs, dims=dims, options=_OPTIONS)


def _tensors(case: Case) -> Iterator[onnx.ValueInfoProto]:
    """The tensors that a call gives: an optional value that the data has, and the items of a
    sequence, are declared by the data's shapes.
    """
    for value, data in zip(case.inputs, case.data_sets[0][0], strict=False):
        if value.type.HasField("tensor_type"):
            yield value
        elif isinstance(data, list):
            yield from (_declared(f"{value.name}_{i}", item) for i, item in enumerate(data))
        elif data is not None:
            yield _declared(value.name, data)


def _declared(name: str, data: Any) -> onnx.ValueInfoProto:
    array = np.asarray(data)
    code = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    return onnx.helper.make_tensor_value_info(name, code, array.shape)


def _axis(dim: onnx.TensorShapeProto.Dimension, loosened: bool, fresh: Iterator[str]) -> str:
    if dim.HasField("dim_value") and not loosened:
        return str(dim.dim_value)
    return dim.dim_param if dim.dim_param.isidentifier() else next(fresh)
