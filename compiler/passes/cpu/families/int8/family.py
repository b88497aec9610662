"""Exact matmuls and convolutions of small integers."""

from compiler.passes.cpu.families.family import Family
from compiler.passes.cpu.families.int8.emit import emit_int8
from compiler.passes.cpu.families.int8.layout import describe_tile
from compiler.passes.cpu.families.int8.match import match_int8

INT8 = Family(
    name="int8",
    summary="matmuls and convolutions of 8-bit integers, accumulated exactly in 32 bits",
    match=match_int8,
    tile=describe_tile,
    emit=emit_int8,
)
