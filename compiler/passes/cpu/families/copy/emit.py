"""The flat copy of a tensor program that gives the elements of its input in order."""

from typing import Any

from tvm import tirx

from compiler.passes.cpu.families.generic.emit import emit_parallel
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.exprs import load
from compiler.tir.flat import Flattener
from compiler.tir.loops import Stmt, seq
from compiler.tir.stages import Axis, Stage

IN_ORDER = "relaxd.in_order"
"""Marks a tensor program that gives the elements of its first parameter in order; fusion drops the
mark.
"""


def marked(func: Any) -> bool:
    """Whether a function is such a program."""
    return isinstance(func, tirx.PrimFunc) and bool(func.attrs) and IN_ORDER in func.attrs


def emit_copy(func: tirx.PrimFunc, unit: VectorUnit) -> Stmt:
    """The body of a marked program as one loop over flat buffers."""
    flat = Flattener()
    buffers = [flat.parameter(param) for param in func.params if hasattr(param.ty, "shape")]
    axis = Axis(tirx.Var("i", "int64"), buffers[-1].shape[0])
    stage = Stage("copy", buffers[-1], (axis,), (axis.var,), load(buffers[0], [axis.var]))
    return seq(*flat.prelude, emit_parallel(stage, unit))
