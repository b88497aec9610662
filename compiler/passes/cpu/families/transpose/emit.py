"""Programs that write along one axis and read along another, as transposes do: in blocks of both,
by way of small copies.
"""

from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from compiler.passes.cpu.families.generic.emit import worth_sharing
from compiler.passes.cpu.shared.loop_nest import is_short, vectorizable, write
from compiler.passes.cpu.shared.sharing import share_parts, with_extents
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.exprs import (
    Expr,
    Table,
    as_int,
    bits_of,
    const,
    dtype_of,
    is_choice,
    load,
    loads,
    nodes,
    rewrite,
    substitute,
    uses,
)
from compiler.tir.flat import Flattener, flatten_stage, merge_axes, stride
from compiler.tir.loops import (
    Stmt,
    allocate,
    bind,
    seq,
    serial,
    store,
    strips,
    unrolled,
    vectorized,
    when,
)
from compiler.tir.stages import Axis, Program, Stage

READ, WRITTEN = 16, 64
"""Elements of a block along the axis that is read, and along the one that is written."""


@dataclass(frozen=True)
class Permute:
    """`stage`, flat, stores without gaps along `written`; its load `far` has none along `read`."""

    stage: Stage
    far: Any
    read: Axis
    written: Axis
    prelude: tuple[Stmt, ...]


def read_permute(program: Program) -> Permute | None:
    """The program as such, None if it is none."""
    if len(program.stages) != 1 or program.stages[0].init is not None:
        return None
    flat = Flattener.of(program)
    stage = merge_axes(flatten_stage(program.stages[0], flat))
    written = [axis for axis in stage.axes if _step(stage.indices[0], axis) == 1]
    if (
        len(written) != 1
        or vectorizable(stage.value, written[0].var)
        or not _gathers(stage.value, written[0])
    ):
        return None
    far = [one for one in loads(stage.value) if _step(one.indices[0], written[0]) not in (0, 1)]
    read = [
        axis
        for axis in stage.axes
        if axis is not written[0] and all(_step(one.indices[0], axis) == 1 for one in far)
    ]
    if len(far) != 1 or len(read) != 1 or any(is_short(axis) for axis in (*read, *written)):
        return None
    return Permute(stage, far[0], read[0], written[0], tuple(flat.prelude))


def _step(offset: Expr, axis: Axis) -> int | None:
    return as_int(stride(offset, axis.var))


def _gathers(value: Expr, axis: Axis) -> bool:
    """Whether nothing but addresses keeps the value from being computed in vectors along
    the axis.
    """
    for node in nodes(value, into_loads=False):
        if isinstance(node, tvm.ir.TensorLoad):
            if stride(node.indices[0], axis.var) is None or dtype_of(node) == "bool":
                return False
        elif isinstance(node, tvm.ir.Call) and uses(node, axis.var):
            return False
    return not any(is_choice(node) for node in nodes(value)) and dtype_of(value) != "bool"


def emit_permute(permute: Permute, unit: VectorUnit) -> Stmt:
    """The kernel: a task is a strip of blocks along the axis that is written."""
    stage, inner = permute.stage, (permute.read, permute.written)
    outer = tuple(axis for axis in stage.axes if all(axis is not one for one in inner))
    blocks, worth = tirx.ceildiv(permute.written.extent, const(WRITTEN)), worth_sharing(stage)

    def tasks(axes: tuple[Axis, ...]) -> Stmt:
        return share_parts(axes, blocks, worth, lambda at, block: _strip(permute, unit, at, block))

    return seq(*permute.prelude, with_extents(outer, tasks))


def _strip(permute: Permute, unit: VectorUnit, at: Table, block: Expr) -> Stmt:
    """All blocks along the axis that is read."""
    read, written = permute.read, permute.written
    lanes = unit.lanes(max(map(bits_of, (dtype_of(permute.stage.value), dtype_of(permute.far)))))

    def square(first: Expr, start: Expr) -> Stmt:
        """READ by `lanes` elements through a copy: addresses far apart share a place in the cache,
        which holds few of them.
        """
        copy, allocation = allocate([lanes * READ], dtype_of(permute.far), "copy")

        def line(j: Expr) -> Stmt:
            def element(i: Expr) -> Stmt:
                source = load(
                    permute.far.source,
                    [
                        substitute(
                            permute.far.indices[0],
                            {**at, read.var: first + i, written.var: start + j},
                        )
                    ],
                )
                return store(copy, source, j * const(READ) + i)

            return strips(const(READ), lanes, element)

        def row(i: Expr) -> Stmt:
            return vectorized(
                lanes,
                lambda j: _point(
                    permute, at, first + i, start + j, load(copy, [j * const(READ) + i])
                ),
            )

        return seq(allocation, unrolled(lanes, line), serial(READ, row, "i"))

    def plain(first: Expr, height: Expr, start: Expr, count: Expr) -> Stmt:
        return serial(
            height,
            lambda i: serial(count, lambda j: _point(permute, at, first + i, start + j, None), "j"),
            "i",
        )

    def rows(first: Expr, start: Expr, count: Expr) -> Stmt:
        whole = count // const(lanes)
        rest = plain(first, const(READ), start + whole * const(lanes), count - whole * const(lanes))
        squares = serial(whole, lambda b: square(first, start + b * const(lanes)), "square")
        height = read.extent - first
        return when(height >= const(READ), seq(squares, rest), plain(first, height, start, count))

    def blocks(start: Expr) -> Stmt:
        many = tirx.ceildiv(read.extent, const(READ))
        count = tirx.min(const(WRITTEN), written.extent - start)
        return bind(
            "count",
            count,
            lambda count: serial(many, lambda b: rows(b * const(READ), start, count), "block"),
        )

    return bind("start", block * const(WRITTEN), blocks)


def _point(permute: Permute, at: Table, i: Expr, j: Expr, far: Expr | None) -> Stmt:
    """One element, what is read from afar replaced by `far` where that is given."""
    table, stage = {**at, permute.read.var: i, permute.written.var: j}, permute.stage

    def visit(node: Expr) -> Expr | None:
        if (
            far is not None
            and isinstance(node, tvm.ir.TensorLoad)
            and tvm_ffi.structural_equal(node, permute.far)
        ):
            return far
        return table.get(node) if isinstance(node, tvm.ir.Var) else None

    return write(stage, rewrite(stage.value, visit), table)
