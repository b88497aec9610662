"""Products of two tensors that are both computed at run time: a few rows by two vectors of columns
in registers.

Rows and columns past the end are clamped into the last whole block, which computes some results
twice and needs no masks.
"""

from collections.abc import Callable

import tvm
from tvm import tirx

from compiler.passes.cpu.families.matmul.match import Contraction
from compiler.passes.cpu.shared.loop_nest import nest, vectorizable
from compiler.passes.cpu.shared.register_tile import along, products, register_tile
from compiler.passes.cpu.shared.sharing import extents_of, place_of, share_parts
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.exprs import Expr, Table, as_int, const, substitute
from compiler.tir.flat import stride
from compiler.tir.loops import PARALLEL_FLOPS, Stmt, bind_opaque, product, seq, serial, when


def emit_blocked(contraction: Contraction, unit: VectorUnit) -> Stmt | None:
    """The kernel, None where columns are not contiguous or there are no rows to share them."""
    column = contraction.column.var
    vectors = all(vectorizable(out.value, column) for out in contraction.epilogue.outputs)
    if (
        as_int(stride(contraction.right.indices[0], column)) != 1
        or not vectors
        or not contraction.rows
        or not contraction.reduce
    ):
        return None
    if float(getattr(contraction.init, "value", 1)) != 0.0:
        return None
    return seq(
        *contraction.prelude,
        bind_opaque(
            "m", product(extents_of(contraction.rows)), lambda m: _tasks(contraction, unit, m)
        ),
    )


def _tasks(contraction: Contraction, unit: VectorUnit, m: Expr) -> Stmt:
    height, width = register_tile(unit)
    height = min(height, 4)
    depth = product(extents_of(contraction.reduce))
    work = product(extents_of(contraction.batch)) * m * contraction.column.extent * depth * const(2)
    worth = tvm.sym.Analyzer().simplify(work) >= const(PARALLEL_FLOPS)

    def strip(at: Table, index: Expr) -> Stmt:
        return _strip(contraction, unit, height, width, m, index, at)

    return share_parts(contraction.batch, tirx.ceildiv(m, const(height)), worth, strip)


def _strip(
    contraction: Contraction,
    unit: VectorUnit,
    height: int,
    width: int,
    m: Expr,
    strip: Expr,
    at: Table,
) -> Stmt:
    """`height` rows by all columns, in blocks as wide as the columns allow."""
    rows, binds = [], []
    for i in range(height):
        place = place_of(contraction.rows, tirx.min(strip * const(height) + const(i), m - const(1)))
        own = {var: tirx.Var(f"{var.name}_{i}", "int64") for var in place}
        binds += [tirx.Bind(own[var], value) for var, value in place.items()]
        rows.append({**at, **own})
    widths = (width, unit.lanes(32), 1)
    return seq(
        *binds,
        _columns(
            contraction.column.extent,
            widths,
            lambda base, size: _block(contraction, unit, rows, base, size),
        ),
    )


def _columns(extent: Expr, widths: tuple[int, ...], block: Callable[[Expr, int], Stmt]) -> Stmt:
    size, *smaller = widths
    if size == 1:
        return serial(extent, lambda j: block(j, 1), "column")
    whole = serial(
        tirx.ceildiv(extent, const(size)),
        lambda b: block(tirx.min(b * const(size), extent - const(size)), size),
        "block",
    )
    return when(
        tvm.sym.Analyzer().simplify(extent >= const(size)),
        whole,
        _columns(extent, tuple(smaller), block),
    )


def _block(
    contraction: Contraction, unit: VectorUnit, rows: list[Table], base: Expr, size: int
) -> Stmt:
    *outer, last = contraction.reduce

    def at(i: int, lane: Expr) -> Table:
        return {**rows[i], contraction.column.var: base + lane}

    def over_depth(body: Callable[[Table], Stmt]) -> Stmt:
        return nest(
            tuple(outer),
            lambda table: along(last.extent, unit.together)(lambda k: body({**table, last.var: k})),
        )

    return products(
        len(rows),
        size,
        size,
        over_depth,
        lambda i, k: substitute(contraction.left, {**rows[i], **k}),
        lambda k, lane: substitute(contraction.right, {**at(0, lane), **k}),
        None,
        lambda i, lane, total: contraction.epilogue.write(total, at(i, lane)),
    )
