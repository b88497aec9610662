"""Products of two tensors that are both computed at run time: a few rows by two vectors of columns in registers.

Rows and columns past the end are clamped into the last whole block, which computes some results twice and needs no masks.
"""

from collections.abc import Callable
from typing import Any

import tvm
from tvm import tirx

from compiler.passes.kernels.contract import Contraction, Output
from compiler.passes.kernels.gemm import PARALLEL_FLOPS
from compiler.passes.kernels.generic import guarded
from compiler.passes.kernels.micro import register_tile
from compiler.passes.kernels.nest import nest, vectorizable
from compiler.passes.machine import Machine
from compiler.passes.tir.exprs import Expr, as_int, const, load, rewrite, substitute
from compiler.passes.tir.flat import stride
from compiler.passes.tir.loops import Stmt, allocate, bind_all, bind_opaque, product, seq, serial, store, unfuse, vectorized, when

Table = dict[Any, Expr]


def emit_blocked(contraction: Contraction, machine: Machine) -> Stmt | None:
    """The kernel, None where columns are not contiguous or there are no rows to share them."""
    column = contraction.column.var
    step = stride(contraction.right.indices[0], column)
    vectors = all(vectorizable(out.value, column) for out in contraction.outputs)
    if step is None or as_int(step) != 1 or not vectors or not contraction.rows or not contraction.reduce:
        return None
    if float(getattr(contraction.init, "value", 1)) != 0.0:
        return None
    return seq(
        *contraction.prelude,
        bind_opaque("m", product([axis.extent for axis in contraction.rows]), lambda m: _tasks(contraction, machine, m)),
    )


def _tasks(contraction: Contraction, machine: Machine, m: Expr) -> Stmt:
    height, width = register_tile(machine)
    height = min(height, 4)
    strips = tirx.ceildiv(m, const(height))
    batch = [axis.extent for axis in contraction.batch]

    def task(index: Expr) -> Stmt:
        *outer, strip = unfuse(index, [*batch, strips])
        variables = [axis.var for axis in contraction.batch]
        return bind_all(variables, outer, lambda at: _strip(contraction, machine, height, width, m, strip, at))

    depth = product([axis.extent for axis in contraction.reduce])
    work = product(batch) * m * contraction.column.extent * depth * const(2)
    return guarded(product([*batch, strips]), tvm.sym.Analyzer().simplify(work), task, PARALLEL_FLOPS)


def _strip(contraction: Contraction, machine: Machine, height: int, width: int, m: Expr, strip: Expr, at: Table) -> Stmt:
    """`height` rows by all columns, in blocks as wide as the columns allow."""
    axes = contraction.rows
    extent = contraction.column.extent
    variables, values = [], []
    for i in range(height):
        row = tirx.min(strip * const(height) + const(i), m - const(1))
        variables += [tirx.Var(f"{axis.var.name}_{i}", "int64") for axis in axes]
        values += unfuse(row, [axis.extent for axis in axes])

    def run(bound: Table) -> Stmt:
        fresh = [bound[var] for var in variables]
        rows = [{**at, **dict(zip([axis.var for axis in axes], fresh[i * len(axes) :], strict=False))} for i in range(height)]
        return _columns(extent, (width, machine.lanes(32), 1), lambda base, size: _block(contraction, rows, base, size))

    return bind_all(variables, values, run)


def _columns(extent: Expr, widths: tuple[int, ...], block: Callable[[Expr, int], Stmt]) -> Stmt:
    size, *smaller = widths
    if size == 1:
        return serial(extent, lambda j: block(j, 1), "column")
    whole = serial(tirx.ceildiv(extent, const(size)), lambda b: block(tirx.min(b * const(size), extent - const(size)), size), "block")
    return when(tvm.sym.Analyzer().simplify(extent >= const(size)), whole, _columns(extent, tuple(smaller), block))


def _block(contraction: Contraction, rows: list[Table], base: Expr, size: int) -> Stmt:
    acc, allocation = allocate([len(rows), size], "float32", "acc")
    column = contraction.column.var

    def each(make: Callable[[int, Expr, Table], Stmt], at: Table) -> Stmt:
        return seq(*(vectorized(size, lambda lane, i=i: make(i, lane, {**at, **rows[i], column: base + lane})) for i in range(len(rows))))  # type: ignore[misc]

    def step(i: int, lane: Expr, at: Table) -> Stmt:
        term = substitute(contraction.left, at) * substitute(contraction.right, at)
        return store(acc, load(acc, [const(i), lane]) + term, const(i), lane)

    def write(i: int, lane: Expr, at: Table) -> Stmt:
        return seq(*(_write(contraction, out, load(acc, [const(i), lane]), at) for out in contraction.outputs))

    clear = each(lambda i, lane, at: store(acc, tirx.const(0, "float32"), const(i), lane), {})
    return seq(allocation, clear, nest(contraction.reduce, lambda at: each(step, at)), each(write, {}))


def _write(contraction: Contraction, out: Output, total: Expr, at: Table) -> Stmt:
    def visit(node: Expr) -> Expr | None:
        if isinstance(node, tvm.ir.TensorLoad) and node.source.same_as(contraction.total):
            return total
        return at.get(node) if isinstance(node, tvm.ir.Var) else None

    return store(out.target.source, rewrite(out.value, visit), substitute(out.target.indices[0], at))
