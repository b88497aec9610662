"""The kernel that copies the elements of its input in order.

One loop in vectors over both flat buffers, in strips over the threads where they are long.
"""

from tvm import tirx

from compiler.passes.cpu.families.generic.emit import emit_parallel
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import emit, statements
from compiler.tir.exprs import load
from compiler.tir.flat import Flattener
from compiler.tir.loops import Stmt
from compiler.tir.stages import Axis, Program, Stage


def emit_copy(program: Program, unit: VectorUnit) -> Stmt:
    """The body of a function that runs the program."""
    flat = Flattener.of(program)
    source, result = (flat.views[buffer] for buffer in program.params)
    # The shapes do not matter: the flat offsets are equal, so no index has to be divided.
    axis = Axis(tirx.Var("i", "int64"), result.shape[0])
    stage = Stage("copy", result, (axis,), (axis.var,), load(source, [axis.var]))
    with statements() as body:
        for stmt in flat.prelude:
            emit(stmt)
        emit_parallel(stage, unit)
    return body.stmt
