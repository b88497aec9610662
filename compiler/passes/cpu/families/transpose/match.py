"""Programs that write along one axis and read along another, as transposes do."""

from dataclasses import dataclass
from typing import Any

import tvm

from compiler.passes.cpu.families.family import Declined
from compiler.passes.cpu.shared.loop_nest import is_short
from compiler.passes.cpu.shared.vectorizable import is_vectorizable
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.exprs import Expr, as_int, dtype_of, is_choice, loads, nodes, uses
from compiler.tir.flat import Flattener, flatten_stage, merge_axes, stride
from compiler.tir.loops import Stmt
from compiler.tir.stages import Axis, Program, Stage


@dataclass(frozen=True)
class Permute:
    """A flat stage, contiguous along `written`; its load `far` is contiguous along `read`."""

    stage: Stage
    far: Any
    read: Axis
    written: Axis
    prelude: tuple[Stmt, ...]


def match_permute(program: Program, unit: VectorUnit) -> Permute | Declined:
    """Read the program as a permutation."""
    if len(program.stages) != 1:
        return Declined("it has more than one stage")
    if program.stages[0].init is not None:
        return Declined("it is a reduction")
    flat = Flattener.of(program)
    # Merged axes are longer: [N, H, W, C] to [N, C, H, W] is one transpose of HW by C.
    stage = merge_axes(flatten_stage(program.stages[0], flat))
    written = [axis for axis in stage.axes if _step(stage.indices[0], axis) == 1]
    if len(written) != 1:
        return Declined("its result is not stored without gaps along one axis")
    # Then the generic kernel is as fast: it reads and writes whole vectors.
    if is_vectorizable(stage.value, written[0].var):
        return Declined("it reads and writes along the same axis")
    if not _is_gather_only(stage.value, written[0]):
        return Declined("more than the position of its loads keeps it from vectors")
    far = [one for one in loads(stage.value) if _step(one.indices[0], written[0]) not in (0, 1)]
    if len(far) != 1:
        return Declined("it does not read exactly one tensor with gaps")
    others = [axis for axis in stage.axes if axis is not written[0]]
    read = [axis for axis in others if _step(far[0].indices[0], axis) == 1]
    if len(read) != 1:
        return Declined("it reads a tensor without gaps along no axis")
    # A square of such an axis would be mostly empty.
    if is_short(read[0]) or is_short(written[0]):
        return Declined("one of its two axes fills no vector")
    return Permute(stage, far[0], read[0], written[0], tuple(flat.prelude))


def _step(offset: Expr, axis: Axis) -> int | None:
    return as_int(stride(offset, axis.var))


def _is_gather_only(value: Expr, axis: Axis) -> bool:
    """True if only the indices of its loads prevent computing the value in vectors."""
    if dtype_of(value) == "bool" or any(is_choice(node) for node in nodes(value)):
        return False
    for node in nodes(value, into_loads=False):
        if isinstance(node, tvm.ir.TensorLoad):
            if stride(node.indices[0], axis.var) is None or dtype_of(node) == "bool":
                return False
        elif isinstance(node, tvm.ir.Call) and uses(node, axis.var):
            return False
    return True
