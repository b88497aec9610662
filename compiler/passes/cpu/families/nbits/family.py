"""Matmuls by block-wise quantized weights of 4 and 8 bits, and by weights of float16."""

from compiler.passes.cpu.families.family import Family
from compiler.passes.cpu.families.nbits.emit import describe_tile, emit_block_matmul
from compiler.passes.cpu.families.nbits.match import match_block_matmul

BLOCK_MATMUL = Family(
    name="nbits",
    summary="matmuls by matrices of 4- and 8-bit numbers in blocks with a scale, and of float16",
    match=match_block_matmul,
    tile=describe_tile,
    emit=emit_block_matmul,
)
