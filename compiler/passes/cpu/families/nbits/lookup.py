"""Dequantization of 4-bit weights by an instruction that looks up each lane in a table of 16.

Few rows are multiplied by weights in registers, many by a panel in scratch memory. Either way the
accumulators of a block are scaled at its end, so that a row's result does not depend on the others.
"""

from collections.abc import Iterator

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.families.nbits.match import BlockMatmul, default_zero
from compiler.passes.cpu.families.nbits.rows import FloatRows
from compiler.passes.cpu.families.nbits.vectors import (
    Registers,
    Vectors,
    load_offset,
    shift_number,
    unpack_words,
)
from compiler.tir.exprs import Expr, const, load

_PERMUTE = "llvm.x86.avx512.permvar.sf.512"


def look_up(
    matmul: BlockMatmul, vectors: Vectors, block: Expr, word_count: int
) -> Iterator[tuple[Expr, Registers]]:
    """(k, weights) for every row of a block, looked up but not scaled: a shift and a lookup for
    each vector.
    """
    lanes, many = vectors.lanes, len(vectors.starts)
    table = Registers(1, lanes, "float32", "table")
    table[0] = _table_of(matmul, lanes)
    for k, words, index in unpack_words(matmul, vectors, block, word_count):
        values = Registers(many, lanes, "float32", "reals")
        for v in range(many):
            numbers = shift_number(words[v], index, lanes)
            values[v] = tirx.call_llvm_pure_intrin(f"float32x{lanes}", _PERMUTE, table[0], numbers)
        yield k, values


def _table_of(matmul: BlockMatmul, lanes: int) -> Expr:
    """The values of all numbers: those of the codebook, else the numbers themselves."""
    if matmul.codebook is not None:
        return load(matmul.codebook, [prim.Ramp(const(0), const(1), lanes)])
    # If all weights have the same zero point, the table contains the difference.
    middle = default_zero(matmul) if matmul.zeros is None else 0
    numbers = prim.Ramp(tirx.const(-middle, "int32"), tirx.const(1, "int32"), lanes)
    return numbers.astype(f"float32x{lanes}")


def accumulate_scaled(
    matmul: BlockMatmul,
    vectors: Vectors,
    left: FloatRows,
    rows_and_block: tuple[list[Expr], Expr],
    parts: Registers,
    acc: Registers,
) -> None:
    """Emit the scaled accumulators of a block, for (rows, block), added to those of the depth, with
    the sums of the rows' elements times the offsets of columns.

    Intrinsics, for any number of rows: LLVM would choose which of two products is rounded.
    """
    many, (rows, block) = len(vectors.starts), rows_and_block
    for v, start in enumerate(vectors.starts):
        scale = Registers(1, vectors.lanes, "float32", "scale")
        scale[0] = vectors.load_table(matmul.scales, block, start)
        if matmul.zeros is not None:
            offset = Registers(1, vectors.lanes, "float32", "offset")
            offset[0] = load_offset(matmul, vectors, block, start, scale[0])
            if not matmul.has_offsets:
                offset[0] = -offset[0]
        for i, row in enumerate(rows):
            number = i * many + v
            acc[number] = vectors.multiply_add(parts[number], scale[0], acc[number])
            if matmul.zeros is not None:
                total = vectors.broadcast(load(left.block_totals, [row * matmul.blocks + block]))
                acc[number] = vectors.multiply_add(total, offset[0], acc[number])
