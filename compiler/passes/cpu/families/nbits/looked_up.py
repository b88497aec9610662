"""Numbers of 4 bits that one instruction turns into reals, each vector of them looked up in 16.

Few rows are multiplied as numbers are looked up, many by a panel of them in scratch memory. Either
way sums of a block are scaled at its end, so that a row's bits do not depend on the others.
"""

from collections.abc import Iterator

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.families.nbits.match import NBits, middle_of
from compiler.passes.cpu.families.nbits.rows import Floats
from compiler.passes.cpu.families.nbits.vectors import (
    Held,
    Vectors,
    numbers_of,
    offset_of,
    shifted,
)
from compiler.tir.exprs import Expr, load

_LOOK_UP = "llvm.x86.avx512.permvar.sf.512"
ROWS = 6
"""Rows whose sums of a block fit into 32 registers beside those of the depth, where numbers have
been looked up before.
"""


def looked_up(
    nbits: NBits, vectors: Vectors, block: Expr, words: int
) -> Iterator[tuple[Expr, Held]]:
    """(k, reals) for every row of a block, whose numbers one instruction turns into reals: per
    number a shift and a look-up. They are to be scaled.
    """
    lanes, many = vectors.lanes, len(vectors.starts)
    # Numbers of one zero point are looked up less it.
    middle = middle_of(nbits) if nbits.zeros is None else 0
    table = Held(1, lanes, "float32", "table")
    table[0] = prim.Ramp(tirx.const(-middle, "int32"), tirx.const(1, "int32"), lanes).astype(
        f"float32x{lanes}"
    )
    for k, held, number in numbers_of(nbits, vectors, block, words):
        reals = Held(many, lanes, "float32", "reals")
        for v in range(many):
            words_of = shifted(held[v], number, lanes)
            reals[v] = tirx.call_llvm_pure_intrin(f"float32x{lanes}", _LOOK_UP, table[0], words_of)
        yield k, reals


def add_scaled(
    nbits: NBits,
    vectors: Vectors,
    left: Floats,
    at: tuple[list[Expr], Expr],
    parts: Held,
    sums: Held,
) -> None:
    """Emit the sums of a block's products, for (rows, block), scaled; with them those of the rows'
    elements times what numbers are less, or more, behind the scale.

    The same instructions for any number of rows: of two products LLVM chooses which one is rounded.
    """
    many, (rows, block) = len(vectors.starts), at
    for v, start in enumerate(vectors.starts):
        scale = Held(1, vectors.lanes, "float32", "scale")
        scale[0] = vectors.beside(nbits.scales, block, start)
        if nbits.zeros is not None:
            offset = Held(1, vectors.lanes, "float32", "offset")
            offset[0] = offset_of(nbits, vectors, block, start, scale[0])
            if not nbits.added:
                offset[0] = -offset[0]
        for i, row in enumerate(rows):
            number = i * many + v
            sums[number] = vectors.multiply_add(parts[number], scale[0], sums[number])
            if nbits.zeros is not None:
                total = vectors.spread(load(left.sums, [row * nbits.blocks + block]))
                sums[number] = vectors.multiply_add(total, offset[0], sums[number])
