"""Products of two tensors that are both computed at run time: a few rows by two vectors of columns in registers.

Rows and columns past the end are clamped into the last whole block, which computes some results twice and needs no masks.
"""

from collections.abc import Callable

import tvm
from tvm import tirx

from compiler.passes.kernels.contract import Contraction
from compiler.passes.kernels.micro import along, products, register_tile
from compiler.passes.kernels.nest import nest, vectorizable
from compiler.passes.kernels.tasks import extents_of, place_of, share_parts
from compiler.passes.machine import Machine
from compiler.passes.tir.exprs import Expr, Table, as_int, const, substitute
from compiler.passes.tir.flat import stride
from compiler.passes.tir.loops import PARALLEL_FLOPS, Stmt, bind_opaque, product, seq, serial, when


def emit_blocked(contraction: Contraction, machine: Machine) -> Stmt | None:
    """The kernel, None where columns are not contiguous or there are no rows to share them."""
    column = contraction.column.var
    vectors = all(vectorizable(out.value, column) for out in contraction.epilogue.outputs)
    if as_int(stride(contraction.right.indices[0], column)) != 1 or not vectors or not contraction.rows or not contraction.reduce:
        return None
    if float(getattr(contraction.init, "value", 1)) != 0.0:
        return None
    return seq(*contraction.prelude, bind_opaque("m", product(extents_of(contraction.rows)), lambda m: _tasks(contraction, machine, m)))


def _tasks(contraction: Contraction, machine: Machine, m: Expr) -> Stmt:
    height, width = register_tile(machine)
    height = min(height, 4)
    depth = product(extents_of(contraction.reduce))
    work = product(extents_of(contraction.batch)) * m * contraction.column.extent * depth * const(2)
    worth = tvm.sym.Analyzer().simplify(work) >= const(PARALLEL_FLOPS)

    def strip(at: Table, index: Expr) -> Stmt:
        return _strip(contraction, machine, height, width, m, index, at)

    return share_parts(contraction.batch, tirx.ceildiv(m, const(height)), worth, strip)


def _strip(contraction: Contraction, machine: Machine, height: int, width: int, m: Expr, strip: Expr, at: Table) -> Stmt:
    """`height` rows by all columns, in blocks as wide as the columns allow."""
    rows, binds = [], []
    for i in range(height):
        place = place_of(contraction.rows, tirx.min(strip * const(height) + const(i), m - const(1)))
        own = {var: tirx.Var(f"{var.name}_{i}", "int64") for var in place}
        binds += [tirx.Bind(own[var], value) for var, value in place.items()]
        rows.append({**at, **own})
    widths = (width, machine.lanes(32), 1)
    return seq(*binds, _columns(contraction.column.extent, widths, lambda base, size: _block(contraction, machine, rows, base, size)))


def _columns(extent: Expr, widths: tuple[int, ...], block: Callable[[Expr, int], Stmt]) -> Stmt:
    size, *smaller = widths
    if size == 1:
        return serial(extent, lambda j: block(j, 1), "column")
    whole = serial(tirx.ceildiv(extent, const(size)), lambda b: block(tirx.min(b * const(size), extent - const(size)), size), "block")
    return when(tvm.sym.Analyzer().simplify(extent >= const(size)), whole, _columns(extent, tuple(smaller), block))


def _block(contraction: Contraction, machine: Machine, rows: list[Table], base: Expr, size: int) -> Stmt:
    *outer, last = contraction.reduce

    def at(i: int, lane: Expr) -> Table:
        return {**rows[i], contraction.column.var: base + lane}

    def over_depth(body: Callable[[Table], Stmt]) -> Stmt:
        return nest(tuple(outer), lambda table: along(last.extent, machine.together)(lambda k: body({**table, last.var: k})))

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
