"""Recognises the program that reads a KV cache, stored in fewer bits, as float32."""

from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.ir.prim import expr as prim

from compiler.tir import byte_rows
from compiler.tir.exprs import as_int, dtype_of, load, loads, op_name
from compiler.tir.stages import Stage, read_program

STORED_FLOATS = ("float16", "bfloat16")
"""The dtypes that numbers of rows may be cast to."""

BYTES = "int8"
"""What rows with a scale are made of."""


def read_widened(module: tvm.IRModule, call: Any) -> Any:
    """The tensor of 16-bit floats, or of rows of bytes, that a call gives as float32, unchanged
    otherwise; None for any other call.
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
    in_order = len(stage.axes) == len(stage.indices) and all(
        index.same_as(axis.var) for index, axis in zip(stage.indices, stage.axes, strict=True)
    )
    if stage.init is not None or not in_order:
        return None
    return source if _is_cast(stage) or _is_scaled(stage) else None


def _is_cast(stage: Stage) -> bool:
    """True if the stage gives each element of a tensor as float32."""
    cast = stage.value
    if not isinstance(cast, prim.Cast) or dtype_of(cast) != "float32":
        return False
    read = cast.value
    if not isinstance(read, tvm.ir.TensorLoad) or dtype_of(read) not in STORED_FLOATS:
        return False
    return len(read.indices) == len(stage.axes) and all(
        index.same_as(axis.var) for index, axis in zip(read.indices, stage.axes, strict=True)
    )


def _is_scaled(stage: Stage) -> bool:
    """True if the stage gives the numbers of all rows of bytes."""
    reads, variables = loads(stage.value), [axis.var for axis in stage.axes]
    if not reads or dtype_of(reads[0]) != BYTES:
        return False
    stored = reads[0].source
    if len(stored.shape) != len(variables) or as_int(stored.shape[-1]) is None:
        return False
    size = byte_rows.size_of(stored.shape)
    if as_int(stage.axes[-1].extent) != size:
        return False
    wanted = byte_rows.real(
        lambda column: load(stored, [*variables[:-1], column]), variables[-1], size
    )
    return bool(tvm_ffi.structural_equal(stage.value, wanted))
