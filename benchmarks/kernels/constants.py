"""The compiler's tuning constants, each with the case that it rests on and values to measure beside
its own: `python -m benchmarks.kernels --constant NAME`.
"""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from benchmarks.kernels.case import Case
from benchmarks.kernels.cases import cases, more_cases

_CPU = "compiler.passes.cpu"
SHARED = "shared"


@dataclass(frozen=True)
class Constant:
    """A number of a `plan` module.

    kind: the family of kernels, or SHARED; case: `GROUP SHAPE` of the benchmark; candidates: in its
    place. threads: it divides work among threads, so it is measured on all of them, by the wall
    clock.
    """

    kind: str
    attribute: str
    case: str
    candidates: tuple[Any, ...]
    threads: bool = False

    @property
    def name(self) -> str:
        """The name on the command line."""
        return f"{self.kind}.{self.attribute}"

    @property
    def module(self) -> Any:
        """The module that holds it."""
        folder = SHARED if self.kind == SHARED else f"families.{self.kind}"
        return importlib.import_module(f"{_CPU}.{folder}.plan")

    @property
    def value(self) -> Any:
        """The compiler's own choice."""
        return getattr(self.module, self.attribute)

    def find_case(self) -> Case:
        """Its case; raises LookupError where there is none."""
        for case in (*cases(), *more_cases()):
            if f"{case.group} {case.shape}" == self.case:
                return case
        raise LookupError(f"{self.name}: no case is called {self.case!r}")

    @contextmanager
    def replaced_by(self, candidate: Any) -> Iterator[None]:
        """Have kernels built with another value."""
        with patch.object(self.module, self.attribute, candidate):
            yield


def constants_called(name: str) -> list[Constant]:
    """Those of that name, or of that kind; all for an empty name."""
    return [one for one in CONSTANTS if name in ("", one.kind, one.name)]


_DECODE = "attention 1x12 heads of 64, 1 rows, 1000 keys"
_GROUPED = "attention 14 heads of 64 in 2 groups, 1 rows, 1000 keys"
_PREFILL = "attention 1x12 heads of 64, 128 rows, 128 keys"
_LONG = "attention 1x12 heads of 32, 500 rows, 500 keys"
_DEPTHWISE = "pooling 96->96 3x3/1 at 56"
_FOUR_GROUPS = "grouped_conv 128->128 3x3/1 at 28, 4 groups"
_MANY_GROUPS = "grouped_conv 256->256 3x3/1 at 28, 32 groups"
_INT8 = "int8 16x768x3072"
_BLOCK_WISE = "nbits, int8 16x896x4864, 4 bits"

CONSTANTS = (
    Constant("attention", "DECODE_KEYS", _DECODE, (64, 128, 512), threads=True),
    Constant("attention", "DECODE_QUERIES", _DECODE, (4, 16)),
    Constant("attention", "SHARING_QUERIES", _GROUPED, (16, 64)),
    Constant("attention", "MEMBERS", _GROUPED, (4, 8)),
    Constant("attention", "PREFILL_QUERIES", _DECODE, (12, 48)),
    Constant("attention", "DECODE_FLOPS", _DECODE, (1 << 17, 1 << 19), threads=True),
    Constant("attention", "ROWS", _PREFILL, (4, 8)),
    Constant("attention", "TASK_ROWS", _LONG, (64, 256), threads=True),
    Constant("attention", "MANY_HEADS", _PREFILL, (4, 16), threads=True),
    Constant("attention", "HEAD_OVERHEAD", _PREFILL, (0, 1 << 18), threads=True),
    Constant("attention", "SCORED_KEYS", _DECODE, (2, 8)),
    Constant("generic", "STRIP", "generic GELU 128x3072", (1024, 4096), threads=True),
    Constant("generic", "STACK", "generic softmax 1536x128", (256, 4096)),
    Constant("generic", "ROWS_AT_ONCE", "generic softmax 1536x128", (1, 2, 8)),
    Constant("generic", "SHORT", "generic layer norm 128x768", (512, 2048)),
    Constant("generic", "MANY", "generic mean of 16x56x56x256", (4, 32), threads=True),
    Constant("generic", "FEWEST", "generic mean of 1x56x56x144", (2, 8), threads=True),
    Constant("generic", "SMALL", "generic scaled 16x1000x4", (2, 1024), threads=True),
    Constant("grouped_conv", "MOST_POSITIONS", _FOUR_GROUPS, (4, 6)),
    Constant("grouped_conv", "SHARE_COLUMNS", _MANY_GROUPS, (128, 512)),
    Constant("grouped_conv", "TASK_TILES", _MANY_GROUPS, (1, 4)),
    Constant("grouped_conv", "HEAVY_TILES", "grouped_conv 64->64 3x3x3/1 at 4x14", (4, 16)),
    Constant("grouped_conv", "UNROLL", _MANY_GROUPS, (4, 32)),
    Constant("int8", "ROWS", _INT8, (12, 48)),
    Constant("int8", "PANELS", _INT8, (8, 32)),
    Constant("int8", "EVEN", _INT8, (2, 8), threads=True),
    Constant("int8", "STEP", _INT8, (3, 12), threads=True),
    Constant("int8", "SHALLOW", "int8 64->64 3x3/1 at 56", (16, 256)),
    Constant("matmul", "LEAST_SAVED", "matmul 128x384x100", (0.0, 1 / 4)),
    Constant("matmul", "FEW_TILES", "matmul 16x768x3072, streamed", (2, 8)),
    Constant("matmul", "PREFETCH_FEW", "matmul 16x768x3072, streamed", (1, 4)),
    Constant("matmul", "PREFETCH_MANY", "matmul 100x768x3072", (4, 12)),
    Constant("matmul", "PREFETCHED_DEPTH", "matmul 16->96 1x1/1 at 112", (8, 64)),
    Constant("matmul", "SHALLOW", "matmul 64->256 1x1/1 at 56", (32, 256)),
    Constant("matmul", "LEAST_TASKS", "matmul 24->144 1x1/1 at 56", (4, 16), threads=True),
    Constant("matmul", "LEAST_GROUPS", "matmul 1x384x384", (2, 8), threads=True),
    Constant("matmul", "LEAST_TILES", "matmul, bfloat16 128x768x3072", (2, 8)),
    Constant("matmul", "DEEPEST_GATHERED", "matmul 128->128 3x3/2 at 56", (512, 1024, 4096)),
    Constant("matmul", "DEEPEST_IMAGE", "matmul 256->64 1x1/1 at 56", (256, 512, 2048)),
    Constant("matmul", "L1_EIGHTHS", "matmul 128x3072x768", (4, 6, 7)),
    Constant("matmul", "L1_EIGHTHS_WIDE", "matmul 128x3072x768", (4, 5, 7)),
    Constant("matmul", "MOST_TILES", "matmul 512x384x384", (8, 32)),
    Constant("matmul", "GATHERED_TILES", "matmul 128->128 3x3/2 at 56", (4, 16)),
    Constant("matmul", "PANELS", "matmul 128x384x1536", (1, 4)),
    Constant("matmul", "MEMORY_PANELS", "matmul 512x3072x768", (2, 8)),
    Constant("matmul", "GATHERED_PANELS", "matmul 128->128 3x3/2 at 56", (4, 16)),
    Constant("matmul_dynamic", "MOST_ROWS", "matmul_dynamic 1x512x512x512", (2, 6)),
    Constant("nbits", "TASK_ROWS", "nbits, int8 128x896x4864, 4 bits", (32, 128)),
    Constant("nbits", "LOOKUP_ROWS", "nbits 16x896x4864, 4 bits", (4, 8)),
    Constant("nbits", "TALL", _BLOCK_WISE, (4, 12)),
    Constant("nbits", "SCALES_AHEAD", "nbits 1x896x4864, 4 bits", (128, 512)),
    Constant("nbits", "BLOCKS_AHEAD", "nbits 1x896x4864, 4 bits", (2, 8)),
    Constant("nbits", "LINES", "nbits, int8 128x896x4864, 4 bits", (1, 4)),
    Constant("pooling", "ROWS", _DEPTHWISE, (1, 3)),
    Constant("pooling", "MOST_TAPS", "pooling 96->96 5x5/1 at 28", (9, 49)),
    Constant("pooling", "MOST_VECTORS", "pooling 576->576 3x3/1 at 14", (4, 18)),
    Constant("pooling", "TASK_ROWS", _DEPTHWISE, (4, 16)),
    Constant("pooling", "LEAST_TASKS", _DEPTHWISE, (6, 24), threads=True),
    Constant("pooling", "MOST_PARTS", "pooling max 3/2 of 64 at 1000", (2, 16), threads=True),
    Constant("pooling", "COLUMNS", _DEPTHWISE, (2, 8)),
    Constant("pooling", "MANY_TAPS", "pooling 96->96 5x5/1 at 28", (4, 16)),
    Constant("single_conv", "MOST_POSITIONS", "single_conv 8->1 5x5/1 at 224", (8, 32)),
    Constant("single_conv", "UNROLL", "single_conv 64->1 3x3/1 at 56", (2, 6)),
    Constant("single_conv", "STRIP", "single_conv 8->1 5x5/1 at 224", (128, 512), threads=True),
    Constant("transpose", "READ", "transpose 16x64x112x112, channels last", (8, 32)),
    Constant("transpose", "WRITTEN", "transpose 16x64x112x112, channels last", (32, 128)),
    Constant("winograd", "ROWS", "winograd 128->128 3x3/1 at 28", (2, 8)),
    Constant("winograd", "TALL_REGISTERS", "winograd 128->128 3x3/1 at 28", (16, 64)),
    Constant("winograd", "CHUNK", "winograd 256->256 3x3/1 at 14", (32, 128)),
    Constant("winograd", "FETCH", "winograd 256->256 3x3/1 at 14", (8, 32)),
    Constant(SHARED, "PARALLEL_WORK", "generic layer norm 128x768", (1 << 15, 1 << 19), True),
    Constant(SHARED, "VECTORS", "generic mean of 16x56x56x256", (8, 2)),
    Constant(SHARED, "AHEAD", "nbits 1x896x4864, 8 bits", (1024, 16384)),
    Constant(SHARED, "MOST_STRANDS", "generic GELU 128x3072", (2, 8)),
)

ON_BOARDS = frozenset(
    {"int8.BY_COLUMNS", "int8.UNROLL_BY_COLUMNS", "int8.ROWS_BYTES", "pooling.BYTE_COLUMNS"}
)
"""Constants of kernels for processors without vectors: `python -m benchmarks.boards` counts the
instructions of models with them.
"""
