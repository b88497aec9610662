"""The loops of a matmul by constant weights in panels, around those of `panel`.

A task is a block of rows by a group of panels. Loop order in a task: passes over the depth; in a
pass, the panels; in a panel, tiles of MR rows. Between passes the results are in scratch memory in
L2; after the last pass the epilogue turns them into the outputs, row by row, in one sweep. The rows
of the block stay in L2 over all panels, each panel's part of a pass in L1 over all rows.

All extents of rows may be unknown at compile time.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from tvm import tirx

from compiler.passes.cpu.families.matmul import plan
from compiler.passes.cpu.families.matmul.gather import gather_rows
from compiler.passes.cpu.families.matmul.match import Matmul
from compiler.passes.cpu.families.matmul.panel import Block, emit_panel, few_rows, has_tile_epilogue
from compiler.passes.cpu.shared.bfloats import storage_dtype, with_instructions
from compiler.passes.cpu.shared.register_tile import panel_columns
from compiler.passes.cpu.shared.sharing import bind_extents, extents_of
from compiler.passes.cpu.shared.vectorizable import is_vectorizable
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import (
    across,
    alloc,
    emit,
    let,
    let_opaque,
    parallel,
    serial,
    statements,
    store,
    when,
)
from compiler.tir.exprs import Expr, Table, as_int, const, either, load
from compiler.tir.loops import PARALLEL_FLOPS, Stmt, multiply_extents


def emit_matmul(matmul: Matmul, unit: VectorUnit) -> Stmt:
    """The body of the kernel, in tasks of a block of rows by a group of panels."""
    tiling = matmul.tiling
    with statements() as body:
        for stmt in matmul.contraction.prelude:
            emit(stmt)
        rows = bind_extents(matmul.contraction.rows)
        known = replace(matmul, contraction=replace(matmul.contraction, rows=rows))
        m = let_opaque("m", multiply_extents(extents_of(rows)))
        # From two blocks on, tasks lie in the order of the rows: a thread has the same rows from
        # one kernel to the next, and finds them in its cache, which gained 1 to 2 % on MiniLM.
        # Where there are fewer blocks, each thread reads its own part of the weights.
        by_rows = m >= _rows_to_share(known)
        for first, count, base, panels in _tasks(known, m, by_rows):
            if _is_panel_by_panel(known, unit):
                with serial(panels, "panel") as p:
                    _emit_block(known, unit, m, (first, count), (base + p, 1), 1)
            else:
                _emit_block(known, unit, m, (first, count), (base, panels), tiling.panels)
    return with_instructions(body.stmt, unit) if matmul.is_bfloat16 else body.stmt


def _groups(matmul: Matmul, by_rows: Expr) -> Expr:
    """The number of groups that panels are divided into.

    There are as few as `tiling.panels` allows where tasks are in the order of the rows; elsewhere
    at least LEAST_GROUPS, and an even number. Windows have the fewest, as each task gathers its
    own; gathering rows of bfloat16 only rounds them, which costs less than a waiting thread.
    """
    fewest = const(_fewest_groups(matmul))
    if matmul.in_one_run or (matmul.is_bfloat16 and not matmul.contraction.bulk):
        return either(by_rows, fewest, const(_most_groups(matmul)))
    return fewest


def _fewest_groups(matmul: Matmul) -> int:
    return -(-matmul.panel_count // matmul.tiling.panels)


def _most_groups(matmul: Matmul) -> int:
    # With five tasks, one of two threads has three.
    return min(-(-max(_fewest_groups(matmul), plan.LEAST_GROUPS) // 2) * 2, matmul.panel_count)


def _tasks(matmul: Matmul, m: Expr, by_rows: Expr) -> Iterator[tuple[Expr, Expr, Expr, Expr]]:
    """(first row, rows, first panel, panels) of every task, in parallel where there is enough to
    do.
    """
    mr = matmul.tiling.mr
    tiles = let("tiles", tirx.ceildiv(m, mr))
    groups = let("groups", _groups(matmul, by_rows))
    blocks = let("blocks", _blocks(matmul, tiles, by_rows))
    # Opaque, because in a loop over blocks TVM knows that there is one, drops the maximum, and
    # computes quotients ahead of the loop, where there may be none to divide by.
    parts = let_opaque("parts", tirx.max(blocks, 1))
    with parallel(blocks * groups, _is_parallel(matmul, m)) as task:
        inside = let("inside", either(by_rows, groups, blocks))
        outer, inner = tirx.truncdiv(task, inside), tirx.truncmod(task, inside)
        block = let("block", either(by_rows, outer, inner))
        # Blocks are equally high up to a tile, so that the last one leaves no thread waiting.
        first = let("first", tirx.truncdiv(block * tiles, parts) * mr)
        end = tirx.min(tirx.truncdiv((block + 1) * tiles, parts) * mr, m)
        count = let("rows", end - first)
        group = let("group", either(by_rows, inner, outer))
        base, panels = _split_evenly(matmul.panel_count, group, groups)
        with when(count > 0):
            yield first, count, base, panels


def _split_evenly(total: int, index: Expr, parts: Expr) -> tuple[Expr, Expr]:
    """(begin, size) of part `index` of about equal parts."""
    known = as_int(parts)
    if known is not None and total % known == 0:
        return index * (total // known), const(total // known)
    first = let("base", tirx.truncdiv(index * total, parts))
    return first, let("panels", tirx.truncdiv((index + 1) * total, parts) - first)


def _rows_to_share(matmul: Matmul) -> int:
    """The number of rows from which on tasks are in the order of the rows: two full blocks; of
    images as many as have more elements than the weights, which every thread then reads.
    """
    tiling, depth, columns = matmul.tiling, matmul.depth, matmul.columns
    most = 2 * tiling.block_rows
    if not _has_small_blocks(matmul):
        return most
    heavier = -(-depth * columns // (depth + columns))
    return min(most, max(heavier, plan.LEAST_TASKS * tiling.mr))


def _blocks(matmul: Matmul, tiles: Expr, by_rows: Expr) -> Expr:
    """The number of blocks that rows are divided into: as few as L2 allows; for images enough that
    threads have equal parts.
    """
    fewest = tirx.ceildiv(tiles, matmul.tiling.tiles)
    if matmul.is_bfloat16:
        # With five blocks, one of two threads has three.
        even = tirx.ceildiv(fewest, 2) * 2
        if not matmul.contraction.bulk:
            return either(by_rows, even, fewest)
        # With fewer tiles, a block would read the weights for too few rows.
        wanted = tirx.min(
            -(-plan.LEAST_TASKS // _fewest_groups(matmul)), tirx.truncdiv(tiles, plan.LEAST_TILES)
        )
        return tirx.min(tirx.max(even, wanted), tiles)
    if not _has_small_blocks(matmul):
        return fewest
    groups = _fewest_groups(matmul), _most_groups(matmul)
    many, few = (-(-plan.LEAST_TASKS // each) for each in groups)
    wanted = either(by_rows, const(max(many, 4)), const(min(few, 2)))
    return tirx.max(fewest, tirx.min(wanted, tirx.truncdiv(tiles, 2)))


def _has_small_blocks(matmul: Matmul) -> bool:
    """True if blocks may have few tiles: images are read once, and stay from layer to layer in the
    cache of the thread that wrote them.
    """
    return matmul.contraction.bulk and matmul.in_one_run


def _is_parallel(matmul: Matmul, m: Expr) -> Expr | bool:
    """The condition that there is enough work for several threads. Where only run time can tell,
    the loop is compiled twice.

    Where several extents are unknown the rows are those of images, of which there are many.
    """
    extents = [as_int(extent) for extent in extents_of(matmul.contraction.rows)]
    each = 2 * matmul.depth * matmul.columns
    least = each * prod(extent for extent in extents if extent is not None)
    if least >= PARALLEL_FLOPS or None not in extents:
        return least >= PARALLEL_FLOPS
    if matmul.contraction.bulk:
        many = extents.count(None) > 1
    else:
        # Of 256 KiB of weights each thread reads its own part, which is faster even for a single
        # row.
        many = matmul.depth * matmul.columns >= 1 << 16
    return many or m * each >= PARALLEL_FLOPS


def _is_panel_by_panel(matmul: Matmul, unit: VectorUnit) -> bool:
    """True if all passes over a panel precede the next panel: where the rows stay in L2 from panel
    to panel, the results of one panel stay in L1 from pass to pass.
    """
    # With blocks small enough for this at a depth of 1536, it was 1 to 2 % slower than passes by
    # all panels.
    rows = 4 * matmul.tiling.block_rows * matmul.depth
    return matmul.has_several_passes and matmul.in_place and rows <= unit.l2 // 2


def _emit_block(
    matmul: Matmul,
    unit: VectorUnit,
    m: Expr,
    rows: tuple[Expr, Expr],
    group: tuple[Expr, Expr | int],
    most: int,
) -> None:
    """Emit `rows`, (first, count), by the panels of `group`, (base, count), at most `most`."""
    tiling = matmul.tiling
    (first, count), (base, panels) = rows, group
    # One panel's results are small enough for the stack.
    size, scope = most * tiling.block_rows * tiling.nr, "local" if most == 1 else "global"
    results = None if has_tile_epilogue(matmul, unit) else alloc([size], "float32", "sums", scope)
    left = None
    if not matmul.in_place:
        kind, each = (storage_dtype(unit), 2) if matmul.is_bfloat16 else ("float32", 1)
        left = alloc([tiling.block_rows * tiling.kc * each], kind, "left", "global")
    block = Block(matmul, unit, m, first, count, base, results, left)
    if matmul.has_several_passes and matmul.is_bfloat16:
        with serial(panels, "panel") as p:
            _zero_results(block, p)
    _emit_passes(block, panels)
    if not has_tile_epilogue(matmul, unit):
        # After the last pass, not tile by tile in it: deep matmuls are no faster for that.
        _emit_epilogue(block, panels)


def _emit_passes(block: Block, panels: Expr | int) -> None:
    """Emit every pass over the depth, added to the results."""
    matmul, kc = block.matmul, block.matmul.tiling.kc
    step = let("step", _pass_depth(matmul, block.unit, block.m))
    with serial(tirx.ceildiv(matmul.depth, step), "pass") as index:
        start = index * step
        length = step if matmul.depth % kc == 0 else tirx.min(step, matmul.depth - start)
        if block.left is not None:
            rows, depths = (block.first, block.count), (start, length)
            gather_rows(matmul, block.unit, block.left, rows, depths)
        with serial(panels, "panel") as p:
            emit_panel(block, p, start, length)


def _pass_depth(matmul: Matmul, unit: VectorUnit, m: Expr) -> Expr:
    """The depth of a pass."""
    # A few rows fit into L1 at any depth, and memory is read fastest in one long stream.
    kc = const(matmul.tiling.kc)
    if matmul.has_several_passes and matmul.in_place:
        return tirx.Select(m <= few_rows(matmul, unit), const(matmul.depth), kc)
    return kc


def _zero_results(block: Block, p: Expr) -> None:
    """Emit zeros for the results of the panel before the first pass. Rows past the last one, which
    tiles compute and nothing reads, are left.
    """
    nr, block_rows = block.matmul.tiling.nr, block.matmul.tiling.block_rows
    with serial(block.count, "row") as row:
        for lane in across(nr, block.unit.lanes(32)):
            store(block.results, 0, (p * block_rows + row) * nr + lane)


def _emit_epilogue(block: Block, panels: Expr | int) -> None:
    """Emit the outputs, row by row."""
    contraction = block.matmul.contraction
    with serial(block.count, "row") as row:
        position = contraction.epilogue.rows_at(contraction.rows, block.first + row)
        with serial(panels, "panel") as p:
            _emit_outputs(block, p, row, position)


def _emit_outputs(block: Block, p: Expr, row: Expr, position: Table) -> None:
    """Emit the outputs of one row by panel `p`, without the padding of the last panel."""
    epilogue, column = block.matmul.contraction.epilogue, block.matmul.contraction.column.var
    nr, begin = block.matmul.tiling.nr, block.result_index(p, row)
    # An epilogue without a vector form runs column by column.
    vectors = all(is_vectorizable(out.value, column) for out in epilogue.outputs)
    lanes = block.unit.lanes(32) if vectors else 1
    for lane in panel_columns(block.base + p, block.matmul.columns, nr, lanes):
        result = load(block.results, [begin + lane])
        epilogue.store(result, {**position, column: (block.base + p) * nr + lane})
