"""Constants of integers of 2 and 4 bits, which we hold in 8: exact where they are only
dequantised.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from compiler.ir.onnx.support import walk
from compiler.ir.values import Known

WIDER = {
    TensorProto.INT2: "int8",
    TensorProto.INT4: "int8",
    TensorProto.UINT2: "uint8",
    TensorProto.UINT4: "uint8",
}


def widened(graph: onnx.GraphProto) -> dict[str, Known]:
    """The initialisers of such types by name, without those that another operator than
    DequantizeLinear reads.

    Any other could tell the difference: QuantizeLinear saturates to the type of its zero point.
    """
    narrow = {tensor.name: tensor for tensor in graph.initializer if tensor.data_type in WIDER}
    if not narrow:
        return {}
    others = {
        name
        for proto in walk(graph.node)
        if proto.op_type != "DequantizeLinear"
        for name in proto.input
    }
    others |= {output.name for output in graph.output}
    return {name: _held(tensor) for name, tensor in narrow.items() if name not in others}


def _held(tensor: TensorProto) -> Known:
    dtype = WIDER[tensor.data_type]
    return Known(np.asarray(numpy_helper.to_array(tensor)).astype(dtype), dtype)
