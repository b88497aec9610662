"""Counts and positions of loops, and the code by which threads take tasks of a parallel one."""

from collections.abc import Mapping, Sequence
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.tirx.stmt import ForKind

from compiler.tir.exprs import Expr, as_int, const, dtype_of

Stmt = Any

PARALLEL_FLOPS = 1 << 20
"""Work below which waking the other threads takes longer than they save."""

PARALLEL_IF = "relaxd_parallel_if"
"""The attribute of a serial loop whose iterations run over the threads where its value holds."""
TASKS = "relaxd_tasks"
"""The annotation of that loop. TVM may take away a loop of one iteration, and then another loop is
inside of the attribute, whose iterations may depend on each other.
"""

SHARES = 256
"""Into how many shares tasks are divided at most, and how many threads may have one of their own.
"""
TAKE = "relaxd_take"
TAKE_CODE = f"""
define i64 @{TAKE}(ptr %taken, i64 %total, i64 %worker, ptr %state) {{
entry:
  %few = icmp slt i64 %total, {SHARES}
  %shares = select i1 %few, i64 %total, i64 {SHARES}
  %scaled = mul i64 %worker, %shares
  %home = udiv i64 %scaled, {SHARES}
  %begun = load i64, ptr %state, align 8
  %over = getelementptr i32, ptr %taken, i64 {SHARES}
  %all = load atomic i32, ptr %over monotonic, align 4
  %none = icmp ne i32 %all, 0
  br i1 %none, label %nothing, label %look
look:
  %step = phi i64 [ %begun, %entry ], [ %next, %gone ]
  %left = icmp slt i64 %step, %shares
  br i1 %left, label %try, label %finished
try:
  %next = add i64 %step, 1
  %ahead = add i64 %home, %step
  %round = icmp sge i64 %ahead, %shares
  %back = sub i64 %ahead, %shares
  %share = select i1 %round, i64 %back, i64 %ahead
  %flag = getelementptr i32, ptr %taken, i64 %share
  %seen = load atomic i32, ptr %flag monotonic, align 4
  %free = icmp eq i32 %seen, 0
  br i1 %free, label %claim, label %gone
claim:
  %old = atomicrmw xchg ptr %flag, i32 1 monotonic, align 4
  %mine = icmp eq i32 %old, 0
  br i1 %mine, label %found, label %gone
gone:
  br label %look
found:
  store i64 %next, ptr %state, align 8
  %from = mul i64 %share, %total
  %first = udiv i64 %from, %shares
  %to = add i64 %from, %total
  %last = udiv i64 %to, %shares
  %end = getelementptr i64, ptr %state, i64 1
  store i64 %last, ptr %end, align 8
  ret i64 %first
finished:
  store atomic i32 1, ptr %over monotonic, align 4
  br label %nothing
nothing:
  ret i64 -1
}}
"""
"""Claims a share of the tasks below `total`, from `worker`'s own on: gives its first task, or -1,
and stores its end in state[1].

taken: a flag for each share and one for all of them, zero at first; state[0]: how many shares were
passed. LLVM has atomics, TIR does not.
"""


def parallel_loop(stmt: Any) -> tuple[list[Stmt], Any] | None:
    """The loop over tasks in a statement with the attribute PARALLEL_IF, and what other passes
    moved out of the loop: statements to run before it. None where no such loop is left.
    """
    *before, loop = list(stmt.body.seq) if isinstance(stmt.body, tirx.SeqStmt) else [stmt.body]
    return (before, loop) if isinstance(loop, tirx.For) and TASKS in loop.annotations else None


def replace_loop(
    loop: Any,
    *,
    least: Expr | None = None,
    extent: Expr | None = None,
    kind: ForKind | None = None,
    body: Stmt | None = None,
    annotations: Mapping[str, Any] | None = None,
) -> Stmt:
    """The loop with some of its parts replaced."""
    return tirx.For(
        loop.loop_var,
        loop.min if least is None else least,
        loop.extent if extent is None else extent,
        loop.kind if kind is None else kind,
        loop.body if body is None else body,
        None,
        loop.annotations if annotations is None else dict(annotations),
        loop.step,
    )


def over_range(loop: Any, first: Expr, end: Expr) -> Stmt:
    """The iterations of a loop from `first` up to `end`, both int64."""
    dtype = dtype_of(loop.loop_var)
    return replace_loop(loop, least=first.astype(dtype), extent=(end - first).astype(dtype))


def seq(*stmts: Stmt | None) -> Stmt:
    """The statements one after the other, None left out."""
    real = [stmt for stmt in stmts if stmt is not None]
    if not real:
        return tirx.Evaluate(const(0))
    return real[0] if len(real) == 1 else tirx.SeqStmt(real)


def hide_count(count: Expr, positive: Expr) -> Expr:
    """The count in a form that LLVM cannot see through; positive: a run-time value above zero."""
    # LLVM unrolls nested loops of small known counts completely, which takes it seconds.
    return count if as_int(count) == 1 else tirx.min(count, positive * (1 << 20))


def some_of(total: int, most: int, start: Expr) -> Expr:
    """How many of `total` are left from `start`, a multiple of `most`, on: at most `most`."""
    return const(most) if total % most == 0 else tirx.min(most, const(total) - start)


def with_body(func: tirx.PrimFunc, body: Stmt) -> tirx.PrimFunc:
    """The function with another body.

    TVM's own `with_body` makes the function anew, for which it looks through the whole body.
    """
    if body.same_as(func.body):
        return func
    kind = type(func.body)
    return tvm_ffi.structural_mutate(func, [(kind, lambda _old, _mutator: body)])


def root(body: Stmt) -> Stmt:
    """The body as the one block that later passes expect of every function."""
    block = s_tir.SBlock([], [], [], "root", body)
    return s_tir.SBlockRealize([], tirx.IntImm("bool", 1), block)


def unfuse(index: Expr, extents: Sequence[Expr]) -> list[Expr]:
    """The indices of each loop, given that of their fusion, outermost first."""
    result: list[Expr] = []
    for position, extent in enumerate(reversed(extents)):
        last = position == len(extents) - 1
        # Rounding down takes LLVM seconds where the divisor is not known. Indices are not negative,
        # for which rounding to zero is equal.
        known = as_int(extent) is not None
        result.append(index if last else (tirx.floormod if known else tirx.truncmod)(index, extent))
        index = index if last else (tirx.floordiv if known else tirx.truncdiv)(index, extent)
    return result[::-1]


def multiply_extents(extents: Sequence[Expr]) -> Expr:
    """The product of the extents, 1 of none."""
    result: Expr = const(1)
    for extent in extents:
        result = extent if as_int(result) == 1 else result * extent
    return result
