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

from compiler.passes.cpu.families.matmul.gather import gather_rows
from compiler.passes.cpu.families.matmul.match import Matmul
from compiler.passes.cpu.families.matmul.panel import Block, at_once, emit_panel, few_rows
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
    serial,
    share_out,
    statements,
    store,
    when,
)
from compiler.tir.exprs import Expr, Table, as_int, const, either, load
from compiler.tir.loops import PARALLEL_FLOPS, Stmt, multiply_extents

LEAST_TASKS = 8
"""Tasks of an image where it has as many tiles: of five tasks one of two threads has three."""

LEAST_GROUPS = 4
"""Groups of panels where few rows are shared out by their columns."""

LEAST_TILES = 4
"""Tiles of a block of pairs, where rows are cut into more blocks than L2 asks for: 49 rows by 512
columns in blocks of two tiles took 3 % longer on one thread.
"""


def emit_matmul(matmul: Matmul, unit: VectorUnit) -> Stmt:
    """The kernel: tasks, each a block of rows by a group of panels."""
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
            if _panel_by_panel(known, unit):
                with serial(panels, "panel") as p:
                    _emit_block(known, unit, m, (first, count), (base + p, 1), 1)
            else:
                _emit_block(known, unit, m, (first, count), (base, panels), tiling.panels)
    return with_instructions(body.stmt, unit) if matmul.paired else body.stmt


def _groups(matmul: Matmul, by_rows: Expr) -> Expr:
    """Into how many groups the panels are cut.

    Groups are as few as `tiling.panels` allows where tasks lie in the order of the rows; elsewhere
    at least LEAST_GROUPS, and an even number. Windows stay with the fewest, as each task gathers
    them for itself; rows of pairs are only rounded, which costs less than a thread that waits.
    """
    fewest = const(_fewest_groups(matmul))
    if matmul.in_one_run or (matmul.paired and not matmul.contraction.bulk):
        return either(by_rows, fewest, const(_most_groups(matmul)))
    return fewest


def _fewest_groups(matmul: Matmul) -> int:
    return -(-matmul.panel_count // matmul.tiling.panels)


def _most_groups(matmul: Matmul) -> int:
    # Of five tasks one of two threads has three.
    return min(-(-max(_fewest_groups(matmul), LEAST_GROUPS) // 2) * 2, matmul.panel_count)


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
    for task in share_out(blocks * groups, _worth_threads(matmul, m)):
        inside = let("inside", either(by_rows, groups, blocks))
        outer, inner = tirx.truncdiv(task, inside), tirx.truncmod(task, inside)
        block = let("block", either(by_rows, outer, inner))
        # Blocks are equally high up to a tile, so that the last one leaves no thread waiting.
        first = let("first", tirx.truncdiv(block * tiles, parts) * mr)
        end = tirx.min(tirx.truncdiv((block + 1) * tiles, parts) * mr, m)
        count = let("rows", end - first)
        group = let("group", either(by_rows, inner, outer))
        base, panels = _part(matmul.panel_count, group, groups)
        with when(count > 0):
            yield first, count, base, panels


def _part(total: int, index: Expr, parts: Expr) -> tuple[Expr, Expr]:
    """Where part `index` of about equal parts begins, and how large it is."""
    known = as_int(parts)
    if known is not None and total % known == 0:
        return index * (total // known), const(total // known)
    first = let("base", tirx.truncdiv(index * total, parts))
    return first, let("panels", tirx.truncdiv((index + 1) * total, parts) - first)


def _rows_to_share(matmul: Matmul) -> int:
    """Rows from which on tasks lie in the order of the rows: two full blocks; of images as many as
    have more numbers than the weights, which every thread then reads.
    """
    tiling, depth, columns = matmul.tiling, matmul.depth, matmul.columns
    most = 2 * tiling.block_rows
    if not _by_tiles(matmul):
        return most
    heavier = -(-depth * columns // (depth + columns))
    return min(most, max(heavier, LEAST_TASKS * tiling.mr))


def _blocks(matmul: Matmul, tiles: Expr, by_rows: Expr) -> Expr:
    """Into how many blocks the rows are cut: as few as L2 allows, of images as many as leave each
    thread an equal part.
    """
    fewest = tirx.ceildiv(tiles, matmul.tiling.tiles)
    if matmul.paired:
        # Of five blocks one of two threads has three.
        even = tirx.ceildiv(fewest, 2) * 2
        if not matmul.contraction.bulk:
            return either(by_rows, even, fewest)
        # Of fewer tiles a block would read the weights for too few rows.
        wanted = tirx.min(
            -(-LEAST_TASKS // _fewest_groups(matmul)), tirx.truncdiv(tiles, LEAST_TILES)
        )
        return tirx.min(tirx.max(even, wanted), tiles)
    if not _by_tiles(matmul):
        return fewest
    groups = _fewest_groups(matmul), _most_groups(matmul)
    wide, narrow = (-(-LEAST_TASKS // each) for each in groups)
    wanted = either(by_rows, const(max(wide, 4)), const(min(narrow, 2)))
    return tirx.max(fewest, tirx.min(wanted, tirx.truncdiv(tiles, 2)))


def _by_tiles(matmul: Matmul) -> bool:
    """Whether blocks may have few tiles: images are read once, and rest from layer to layer in the
    cache of the thread that wrote them.
    """
    return matmul.contraction.bulk and matmul.in_one_run


def _worth_threads(matmul: Matmul, m: Expr) -> Expr | bool:
    """Whether to share the tasks out; to decide that at run time costs the code of both versions.

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
        # Of 256 KiB of weights each thread reads its own part, which pays even for a single row.
        many = matmul.depth * matmul.columns >= 1 << 16
    return many or m * each >= PARALLEL_FLOPS


def _panel_by_panel(matmul: Matmul, unit: VectorUnit) -> bool:
    """Whether all passes over a panel come before the next panel: where the rows stay in L2 from
    panel to panel, the results of one panel stay in L1 from pass to pass.
    """
    # Blocks made low enough for this at a depth of 1536 were 1 to 2 % slower than passes by all
    # panels: it is done where it costs nothing.
    rows = 4 * matmul.tiling.block_rows * matmul.depth
    return matmul.several and matmul.in_place and rows <= unit.l2 // 2


def _emit_block(
    matmul: Matmul,
    unit: VectorUnit,
    m: Expr,
    rows: tuple[Expr, Expr],
    group: tuple[Expr, Expr | int],
    most: int,
) -> None:
    """`rows` (first, count) by the panels of `group` (base, count), of which there are at most
    `most`.
    """
    tiling = matmul.tiling
    (first, count), (base, panels) = rows, group
    # One panel's results are small enough for the stack.
    size, scope = most * tiling.block_rows * tiling.nr, "local" if most == 1 else "global"
    results = None if at_once(matmul, unit) else alloc([size], "float32", "sums", scope)
    left = None
    if not matmul.in_place:
        kind, each = (storage_dtype(unit), 2) if matmul.paired else ("float32", 1)
        left = alloc([tiling.block_rows * tiling.kc * each], kind, "left", "global")
    block = Block(matmul, unit, m, first, count, base, results, left)
    if matmul.several and matmul.paired:
        with serial(panels, "panel") as p:
            _clear(block, p)
    _emit_passes(block, panels)
    if not at_once(matmul, unit):
        # After the last pass, not tile by tile in it: deep matmuls are no faster for that.
        _emit_epilogue(block, panels)


def _emit_passes(block: Block, panels: Expr | int) -> None:
    """Add every pass over the depth to the results."""
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
    # A few rows by the whole depth are in L1 anyway. Memory is read fastest in one long stream.
    kc = const(matmul.tiling.kc)
    if matmul.several and matmul.in_place:
        return tirx.Select(m <= few_rows(matmul, unit), const(matmul.depth), kc)
    return kc


def _clear(block: Block, p: Expr) -> None:
    """Set the results of the panel to zero before the first pass, but for rows past the last one,
    which tiles compute and nobody reads.
    """
    nr, block_rows = block.matmul.tiling.nr, block.matmul.tiling.block_rows
    with serial(block.count, "row") as row:
        for lane in across(nr, block.unit.lanes(32)):
            store(block.results, 0, (p * block_rows + row) * nr + lane)


def _emit_epilogue(block: Block, panels: Expr | int) -> None:
    """Every output from the results, row by row."""
    contraction = block.matmul.contraction
    with serial(block.count, "row") as row:
        at = contraction.epilogue.rows_at(contraction.rows, block.first + row)
        with serial(panels, "panel") as p:
            _emit_outputs(block, p, row, at)


def _emit_outputs(block: Block, p: Expr, row: Expr, at: Table) -> None:
    """The outputs of one row by panel `p`, without the empty columns of the last panel."""
    epilogue, column = block.matmul.contraction.epilogue, block.matmul.contraction.column.var
    nr, place = block.matmul.tiling.nr, block.place(p, row)
    # Whatever was fused behind the matmul; where it has no vector form it runs column by column.
    vectors = all(is_vectorizable(out.value, column) for out in epilogue.outputs)
    lanes = block.unit.lanes(32) if vectors else 1
    for lane in panel_columns(block.base + p, block.matmul.columns, nr, lanes):
        result = load(block.results, [place + lane])
        epilogue.store(result, {**at, column: (block.base + p) * nr + lane})
