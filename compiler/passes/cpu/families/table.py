"""The kernel families for processors; the first that matches a program writes its loops."""

from typing import Any

from compiler.passes.cpu.families.attention.family import ATTENTION
from compiler.passes.cpu.families.copy.family import COPY
from compiler.passes.cpu.families.family import Family
from compiler.passes.cpu.families.generic.family import GENERIC
from compiler.passes.cpu.families.grouped_conv.family import GROUPED_CONV
from compiler.passes.cpu.families.int8.family import INT8
from compiler.passes.cpu.families.matmul.family import MATMUL
from compiler.passes.cpu.families.matmul_dynamic.family import MATMUL_DYNAMIC
from compiler.passes.cpu.families.nbits.family import BLOCK_MATMUL
from compiler.passes.cpu.families.pooling.family import POOLING
from compiler.passes.cpu.families.single_conv.family import SINGLE_CONV
from compiler.passes.cpu.families.transpose.family import TRANSPOSE
from compiler.passes.cpu.families.winograd.family import WINOGRAD

FAMILIES: tuple[Family[Any], ...] = (
    # The first seven know a program by a mark or by the names of its stages.
    COPY,
    WINOGRAD,
    GROUPED_CONV,
    SINGLE_CONV,
    INT8,
    BLOCK_MATMUL,
    ATTENTION,
    # The others know it by its arithmetic. The first that matches is also the fastest.
    MATMUL,
    MATMUL_DYNAMIC,
    POOLING,
    TRANSPOSE,
    # It takes every program.
    GENERIC,
)
