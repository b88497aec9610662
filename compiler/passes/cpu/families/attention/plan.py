"""Tuning constants of attention.

`python -m benchmarks.kernels --constant attention` measures them again.
"""

from compiler.tir.loops import PARALLEL_FLOPS

DECODE_KEYS = 256
"""Keys of a task: with their values, of 64 elements each, they fill half of a small L2."""

DECODE_QUERIES = 8
"""Queries of a task at most; also the largest number of a head with keys of its own for which
`emit_decode` is faster than packing its keys into panels.
"""

SHARING_QUERIES = 32
"""The largest number of queries of heads that share keys for which `emit_decode` is faster."""

MEMBERS = 6
"""Rows of scores, of queries and heads, whose softmax is interleaved, and by which each value is
multiplied while it is in registers.
"""

PREFILL_QUERIES = 24
"""Queries of a prefill's task: a multiple of those that are members of a group."""

DECODE_FLOPS = PARALLEL_FLOPS // 4
"""Operations from which on several threads decode: they wait for keys and values, and are a quarter
as fast as those of a prefill.
"""

ROWS = 6
"""Queries whose accumulators are in registers at the same time."""

TASK_ROWS = 128
"""Queries of one task, about, where there are few heads: packing keys takes as long as five queries
do.
"""

MANY_HEADS = 8
"""The number of heads from which on each is one task, which packs its keys once."""

HEAD_OVERHEAD = 1 << 16
"""Operations that take as long as the work of a head outside of its matmuls, such as packing keys:
half a microsecond on Zen 4. Because they are counted, the heads of MiniLM run in parallel at 7
tokens, which takes 0.97 of the time.
"""

SCORED_KEYS = 4
"""Keys whose scores are accumulated at once."""
