"""Recognition of contractions: rows x columns, multiplications accumulated over the depth, and an
epilogue for each result.
"""

from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.families.family import Declined
from compiler.passes.cpu.families.matmul import bfloat16, plan
from compiler.passes.cpu.families.matmul.plan import Tiling, tiling_for
from compiler.passes.cpu.shared.bfloats import operand_of
from compiler.passes.cpu.shared.reduction import AnchoredProgram, Epilogue, Output, read_anchored
from compiler.passes.cpu.shared.register_tile import panel_widths
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.exprs import Expr, as_int, const, dtype_of, load, loads, nodes, substitute, uses
from compiler.tir.flat import analyzer_for, merge, stride
from compiler.tir.loops import Stmt
from compiler.tir.stages import Axis, Program


@dataclass(frozen=True)
class Contraction:
    """epilogue(sum over `reduce` of left * right) for `batch` x `rows` x `column`.

    left does not depend on `column`, right does not depend on `rows`. bulk: there are usually many
    rows, those of images.
    """

    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    column: Axis
    reduce: tuple[Axis, ...]
    left: Expr
    right: Any
    init: Expr
    epilogue: Epilogue
    prelude: tuple[Stmt, ...]
    bulk: bool = False

    @property
    def depth(self) -> int | None:
        """The length of the sum if it is fixed."""
        size = 1
        for axis in self.reduce:
            extent = as_int(axis.extent)
            if extent is None:
                return None
            size *= extent
        return size

    @property
    def inner_run(self) -> int:
        """The extent of the innermost axis of the depth, along which the left side is contiguous:
        passes over the depth start at multiples of it.
        """
        return as_int(self.reduce[-1].extent) or 1

    @property
    def in_place(self) -> bool:
        """True if each row of the left side is contiguous along the whole depth."""
        if not isinstance(self.left, tvm.ir.TensorLoad) or len(self.reduce) != 1:
            return False
        return as_int(stride(self.left.indices[0], self.reduce[0].var)) == 1

    @property
    def from_zero(self) -> bool:
        """True if the accumulator begins at zero."""
        return as_int(self.init) == 0 or float(getattr(self.init, "value", 1)) == 0.0


@dataclass(frozen=True)
class Matmul:
    """A contraction by constant weights in panels of `tiling.nr` columns.

    in_place: the left side is read in place; otherwise each pass gathers its rows. depth: steps of
    the innermost loop. is_bfloat16: True if a step is a dot product of two bfloat16.
    """

    contraction: Contraction
    tiling: Tiling
    in_place: bool
    depth: int
    columns: int
    is_bfloat16: bool = False

    @property
    def in_one_run(self) -> bool:
        """True if a row of the left side is contiguous where it is computed: it is read in place,
        or gathered with its elementwise work, such as a gate.
        """
        return self.in_place or (len(self.contraction.reduce) == 1 and not self.is_bfloat16)

    @property
    def run(self) -> int:
        """Steps of one innermost run of the left side."""
        elements = self.contraction.inner_run
        return -(-elements // 2) if self.is_bfloat16 else elements

    @property
    def panel_count(self) -> int:
        """The number of panels, the last one of which may be padded."""
        return -(-self.columns // self.tiling.nr)

    def last_width(self, lanes: int) -> int:
        """Columns of the last panel that are computed: a multiple of `lanes`, or of half of it
        where that is no less than AVX2's; all where fewer would save less than LEAST_SAVED of the
        columns.
        """
        nr, half = self.tiling.nr, lanes // 2 if lanes >= 16 else lanes
        needed = -(-(self.columns - (self.panel_count - 1) * nr) // half) * half
        saved = (nr - needed) / (nr * self.panel_count)
        return nr if self.is_bfloat16 or saved < plan.LEAST_SAVED else needed

    @property
    def has_several_passes(self) -> bool:
        """True if there is more than one pass over the depth."""
        return self.tiling.kc < self.depth


def match_matmul(program: Program, unit: VectorUnit) -> Matmul | Declined:
    """Read the program as a matmul by weights that are packed for the vector unit."""
    if program.stages[0].name == bfloat16.STAGE:
        return _match_bfloat16(program, unit)
    contraction = read_contraction(program, takes_bytes=True)
    if isinstance(contraction, Declined):
        return contraction
    width, depth = packed_width(contraction), contraction.depth
    columns = as_int(contraction.column.extent)
    # Weights that differ from one batch to the next are not packed.
    if contraction.batch:
        return Declined("its right side differs from one batch to the next")
    if width is None or depth is None or columns is None:
        return Declined("its right side is not packed in panels")
    if width not in panel_widths(unit):
        return Declined(f"its panels of {width} columns do not fit the vectors of this target")
    if not contraction.from_zero:
        return Declined("its sum does not begin at zero")
    is_float = dtype_of(contraction.right) == "float32"
    if is_float and columns <= width and _is_faster_unpacked(contraction, unit):
        return Declined("its only panel needs no scratch memory")
    in_place = contraction.in_place
    run = None if in_place else contraction.inner_run
    tiling = tiling_for(unit, width, depth, run, contraction.bulk)
    return Matmul(contraction, tiling, in_place, depth, columns)


def _match_bfloat16(program: Program, unit: VectorUnit) -> Matmul | Declined:
    """Read the program as a matmul of bfloat16 dot products."""
    anchored = read_anchored(program)
    if anchored is None:
        return Declined("it is no reduction followed by elementwise stages")
    term: Any = anchored.combine.term
    weights = loads(term.b)[0].source
    _, depth, width = (int(extent) for extent in weights.shape)
    if width not in panel_widths(unit):
        return Declined(f"its panels of {width} columns do not fit the vectors of this target")
    # The pair of an element follows from its position in a run, so runs are not merged.
    flat = anchored.flat
    right = load(flat.views[weights], [const(0)])
    contraction = _contraction(anchored, operand_of(term.a), term.b)
    if isinstance(contraction, Declined):
        return contraction
    contraction = replace(contraction, right=right)
    columns = as_int(contraction.column.extent)
    if columns is None or contraction.batch:
        return Declined("its columns are not those of the panels")
    tiling = tiling_for(unit, width, depth, -(-contraction.inner_run // 2))
    return Matmul(contraction, tiling, False, depth, columns, is_bfloat16=True)


def describe_tile(matmul: Matmul, unit: VectorUnit) -> str:
    """The register tile and the depth of a pass."""
    steps = "bfloat16 dot products" if matmul.is_bfloat16 else "depth"
    return f"{matmul.tiling.mr}x{matmul.tiling.nr}, {steps} {matmul.tiling.kc} a pass"


def _is_faster_unpacked(contraction: Contraction, unit: VectorUnit) -> bool:
    """True if `matmul_dynamic` computes a single panel faster, as it has no results in scratch
    memory: where rows are read without a condition, and are gathered here or full vectors.
    """
    lanes, columns = unit.lanes(32), as_int(contraction.column.extent)
    # Panels of four vectors were measured in this family only.
    if columns is None or columns > 3 * lanes:
        return False
    full_vectors = columns in (lanes, 2 * lanes)
    return isinstance(contraction.left, tvm.ir.TensorLoad) and (
        not contraction.in_place or full_vectors
    )


def read_contraction(program: Program, takes_bytes: bool = False) -> Contraction | Declined:
    """Read the program as a contraction over float32; takes_bytes: its right side may be int8, of
    which the product takes the floats.
    """
    anchored = read_anchored(program)
    if anchored is None:
        return Declined("it is no reduction followed by elementwise stages")
    term = anchored.combine.term
    if anchored.combine.node is not prim.Add or not isinstance(term, prim.Mul):
        return Declined("its reduction is no sum of multiplications")
    if dtype_of(anchored.anchor.value) != "float32":
        return Declined("its sum is not float32")
    # Either factor may be the side with the columns.
    right = _loaded_bytes(term.b) if takes_bytes else term.b
    contraction = _with_sides(anchored, term.a, right)
    return (
        contraction
        if isinstance(contraction, Contraction)
        else _with_sides(anchored, term.b, term.a)
    )


def _loaded_bytes(side: Expr) -> Expr:
    """The load of a cast from int8, any other side as it is."""
    is_cast = isinstance(side, prim.Cast) and isinstance(side.value, tvm.ir.TensorLoad)
    return side.value if is_cast and dtype_of(side.value) == "int8" else side


def _with_sides(anchored: AnchoredProgram, left: Expr, right: Expr) -> Contraction | Declined:
    """The contraction of these sides, declined unless the right one is a load."""
    if not isinstance(right, tvm.ir.TensorLoad):
        return Declined("its right side is computed, not read")
    return _contraction(anchored, left, right)


def _contraction(anchored: AnchoredProgram, left: Expr, right: Expr) -> Contraction | Declined:
    """The contraction of these sides."""
    anchor, flat = anchored.anchor, anchored.flat
    # Axes of extent 1 have no stride, and would only hide which side depends on what.
    ones = {axis.var: const(0) for axis in anchor.axes if as_int(axis.extent) == 1}
    axes = tuple(axis for axis in anchor.axes if axis.var not in ones)
    analyzer = analyzer_for(axes)
    left, right = (flat.value(substitute(side, ones), analyzer) for side in (left, right))
    # Axes that every access walks as one are merged, so that images have few axes of rows.
    sides = [side for out in anchored.epilogue.outputs for side in (out.target, out.value)]
    axes, (left, right, init, *sides) = merge(axes, [left, right, anchor.init, *sides])
    outputs = tuple(map(Output, sides[::2], sides[1::2]))
    spatial = [axis for axis in axes if not axis.reduce]
    columns = [axis for axis in spatial if not uses(left, axis.var) and uses(right, axis.var)]
    if len(columns) != 1:
        return Declined("it has no single axis of columns")
    if any(as_int(stride(out.target.indices[0], columns[0].var)) != 1 for out in outputs):
        return Declined("its results are not contiguous along the columns")
    rows = tuple(axis for axis in spatial if not uses(right, axis.var))
    return Contraction(
        batch=tuple(a for a in spatial if uses(left, a.var) and uses(right, a.var)),
        rows=rows,
        column=columns[0],
        reduce=tuple(axis for axis in axes if axis.reduce),
        left=left,
        right=right,
        init=init,
        epilogue=replace(anchored.epilogue, outputs=outputs).over(rows),
        prelude=tuple(flat.prelude),
        bulk=len(anchor.spatial) >= 4,
    )


def packed_width(contraction: Contraction) -> int | None:
    """NR where the right side is stored in panels [columns/NR, depth, NR], else None."""
    offset, column = contraction.right.indices[0], contraction.column.var
    widths = {
        as_int(node.b)
        for node in nodes(offset)
        if isinstance(node, prim.FloorMod) and node.a.same_as(column)
    }
    # `pack_panels` writes column j at panel j // NR and position j % NR: the divisor is the width.
    panel_offset = substitute(offset, {column: const(0)})
    width = widths.pop() if len(widths) == 1 else _single_panel_width(contraction, panel_offset)
    # Within a panel, each axis of the depth must lie outside of the next without a gap.
    expected = width
    for axis in reversed(contraction.reduce):
        extent = as_int(axis.extent)
        if extent is None or expected is None or as_int(stride(panel_offset, axis.var)) != expected:
            return None
        expected *= extent
    return width


def _single_panel_width(contraction: Contraction, first: Expr) -> int | None:
    """The width of a panel with all columns, whose index has no remainder."""
    offset, depth = contraction.right.indices[0], contraction.depth
    if as_int(stride(offset, contraction.column.var)) != 1:
        return None
    if not contraction.reduce or depth is None:
        return None
    width = as_int(stride(first, contraction.reduce[-1].var))
    if width is None or as_int(contraction.right.source.shape[0]) != width * depth:
        return None
    return width
