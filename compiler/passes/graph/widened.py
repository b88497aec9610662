"""Recognises the program that reads rows of a cache, stored in 16 bits, as float32."""

from typing import Any

import tvm
from tvm import relax, tirx
from tvm.ir.prim import expr as prim

from compiler.tir.exprs import dtype_of, op_name
from compiler.tir.stages import read_program

NARROW = ("float16", "bfloat16")
"""What rows may be stored as."""


def read_widened(module: tvm.IRModule, call: Any) -> Any:
    """The tensor of 16-bit floats that a call gives as float32, unchanged otherwise; None for any
    other call.
    """
    if op_name(call) != "relax.call_tir":
        return None
    # Dims that no axis has for an extent are given beside the tensor.
    source, *others = call.args[1].fields
    if any(isinstance(other.ty, relax.TensorType) for other in others):
        return None
    func = module[call.args[0]]
    program = read_program(func) if isinstance(func, tirx.PrimFunc) else None
    if program is None or len(program.stages) != 1:
        return None
    (stage,) = program.stages
    cast = stage.value
    if stage.init is not None or not isinstance(cast, prim.Cast) or dtype_of(cast) != "float32":
        return None
    read = cast.value
    if not isinstance(read, tvm.ir.TensorLoad) or dtype_of(read) not in NARROW:
        return None
    variables = [axis.var for axis in stage.axes]
    same = len(variables) == len(read.indices) and all(
        written.same_as(var) and index.same_as(var)
        for written, index, var in zip(stage.indices, read.indices, variables, strict=True)
    )
    return source if same else None
