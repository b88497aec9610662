"""Making loops, stores and functions: a thin, functional layer over TVM's statement nodes."""

from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import tirx
from tvm.tirx.stmt import ForKind

from compiler.tir.exprs import Expr, Table, as_int, const
from compiler.tir.vecmath import vectorize_calls

Stmt = Any
Body = Callable[[Any], Stmt]

PARALLEL_FLOPS = 1 << 20
"""Work below which waking the other threads takes longer than they save."""

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


def seq(*stmts: Stmt | None) -> Stmt:
    """The statements one after the other, None left out."""
    real = [stmt for stmt in stmts if stmt is not None]
    if not real:
        return tirx.Evaluate(const(0))
    return real[0] if len(real) == 1 else tirx.SeqStmt(real)


def _loop(extent: Expr | int, body: Body, kind: ForKind, name: str) -> Stmt:
    count = as_int(extent)
    if count == 0:
        return seq()
    if count == 1 and kind != ForKind.PARALLEL:
        return body(const(0))
    var = tirx.Var(name, "int64")
    return tirx.For(var, const(0), const(count) if count is not None else extent, kind, body(var))


def serial(extent: Expr | int, body: Body, name: str = "i") -> Stmt:
    """for i in range(extent)."""
    return _loop(extent, body, ForKind.SERIAL, name)


def parallel(extent: Expr | int, body: Body, name: str = "task") -> Stmt:
    """The same, over the threads. Each begins with a part of its own, and then takes what the
    others have not begun.

    So a thread finds in its cache what it wrote in the loop before, if tasks lie in the order of
    the rows, and one that wakes late, or whose core also does other work, holds nobody up (affinity
    scheduling, Markatos and LeBlanc 1994).
    """
    if as_int(extent) in (0, 1):
        return serial(extent, body, name)
    taken, allocate_taken = allocate([SHARES + 1], "int32", "taken")

    def worker(index: Expr) -> Stmt:
        first, allocate_first = allocate([1], "int64", "first")
        state, allocate_state = allocate([2], "int64", "state")
        call = tirx.call_extern(
            "int64", TAKE, tirx.address_of(taken[0]), extent, index, tirx.address_of(state[0])
        )
        take = store(first, call, const(0))
        run = bind(
            "start",
            first[0],
            lambda start: serial(state[1] - start, lambda i: body(start + i), name),
        )
        begin = seq(allocate_first, allocate_state, store(state, const(0), const(0)))
        return seq(begin, take, tirx.While(first[0] >= const(0), seq(run, take)))

    launch = _loop(SHARES, worker, ForKind.PARALLEL, "worker")
    clear = serial(SHARES + 1, lambda i: store(taken, tirx.const(0, "int32"), i))
    return seq(
        allocate_taken, clear, tirx.AttrStmt(const(0), "pragma_import_llvm", TAKE_CODE, launch)
    )


def share_out(extent: Expr | int, worth: Expr | bool, body: Body) -> Stmt:
    """body(i) for every i below `extent`, over the threads where `worth` holds; where that is open
    the code is there twice.
    """
    known = False if as_int(extent) == 1 else as_int(worth)
    if known is not None:
        return parallel(extent, body) if known else serial(extent, body)
    return when(worth, parallel(extent, body), serial(extent, body))


def hidden(count: Expr, positive: Expr) -> Expr:
    """The count in a form that LLVM cannot see through, which keeps it from unrolling the loop:
    that takes it seconds.
    """
    return count if as_int(count) == 1 else tirx.min(count, positive * const(1 << 20))


def some_of(total: int, most: int, start: Expr) -> Expr:
    """How many of `total` are left from `start` on, a multiple of `most`, and `most` where there
    are more.
    """
    return const(most) if total % most == 0 else tirx.min(const(most), const(total) - start)


def unrolled(extent: int, body: Body, name: str = "u") -> Stmt:
    """The body repeated at compile time."""
    return seq(*(body(const(i)) for i in range(extent)))


def vectorized(lanes: int, body: Body, name: str = "lane") -> Stmt:
    """One vector statement of `lanes` lanes."""
    return _loop(lanes, body, ForKind.VECTORIZED, name)


def strips(extent: Expr, lanes: int, body: Callable[[Expr], Stmt], name: str = "j") -> Stmt:
    """body(j) for every j below extent, in vectors of `lanes` and what is left over in smaller
    ones.
    """
    return blocks(
        extent, lanes, lambda base, width: vectorized(width, lambda lane: body(base + lane)), name
    )


def blocks(
    extent: Expr, lanes: int, body: Callable[[Expr, int], Stmt], name: str = "block"
) -> Stmt:
    """body(start, width) over the extent in blocks of `lanes`, then smaller ones for the rest."""
    count = as_int(extent)
    if lanes == 1:
        return serial(extent, lambda c: body(c, 1), name)
    if count is None:
        full = extent // const(lanes)
        main = serial(full, lambda c: body(c * const(lanes), lanes), name)
        return seq(
            main,
            serial(
                extent - full * const(lanes),
                lambda t: body(full * const(lanes) + t, 1),
                name + "_rest",
            ),
        )
    parts, start, width = [], 0, lanes
    while width >= 1:
        full = (count - start) // width
        if full:
            parts.append(_block_run(full, width, start, body, name))
            start += full * width
        width //= 2
    return seq(*parts)


def _block_run(
    count: int, width: int, start: int, body: Callable[[Expr, int], Stmt], name: str
) -> Stmt:
    return serial(count, lambda c: body(const(start) + c * const(width), width), name)


def when(condition: Expr, then: Stmt, otherwise: Stmt | None = None) -> Stmt:
    """if condition: then else: otherwise; decided here where the condition is constant."""
    known = as_int(condition)
    if known is not None:
        return then if known else (otherwise if otherwise is not None else seq())
    return tirx.IfThenElse(condition, then, otherwise)


def allocate(
    shape: Sequence[int | Expr], dtype: str, name: str, scope: str = "local"
) -> tuple[Any, Stmt]:
    """A buffer and the statement that allocates it: `local` is on the stack, `global` from the
    thread's workspace pool.
    """
    buffer = tirx.decl_buffer(
        [const(d) if isinstance(d, int) else d for d in shape], dtype, name=name, scope=scope
    )
    # Without this TVM takes small buffers from the heap as well, and LLVM then cannot keep them in
    # registers.
    annotations = {"disable_lower_builtin": tirx.IntImm("bool", 1)} if scope == "local" else None
    return buffer, tirx.AllocBuffer(buffer, annotations)


def store(buffer: Any, value: Expr, *indices: Expr) -> Stmt:
    """buffer[indices] = value."""
    return tirx.BufferStore(buffer, vectorize_calls(value), list(indices))


def prefetch(buffer: Any, index: Expr) -> Stmt:
    """Asks the second-level cache for the line at buffer[index], which need not be within the
    buffer.
    """
    read, keep, data = 0, 2, 1
    return tirx.Evaluate(
        tirx.call_intrin("void", "tirx.prefetch", tirx.address_of(buffer[index]), read, keep, data)
    )


def bind(name: str, value: Expr, body: Body) -> Stmt:
    """`body` with `value` computed once."""
    if as_int(value) is not None or isinstance(value, tvm.ir.Var):
        return body(value)
    var = tirx.Var(name, "int64")
    return seq(tirx.Bind(var, value), body(var))


def bind_opaque(name: str, value: Expr, body: Body) -> Stmt:
    """As `bind`, by way of memory, so that TVM's analyzer sees no expression behind the value.

    Its modular analysis divides by zero ("Check failed: y != 0") where nested ceilings meet a count
    with a constant factor; LLVM turns the buffer back into a register.
    """
    if as_int(value) is not None or isinstance(value, tvm.ir.Var):
        return body(value)
    cell, allocation = allocate([1], "int64", name)
    return seq(allocation, store(cell, value, const(0)), bind(name, cell[const(0)], body))


def bind_opaque_all(name: str, values: Sequence[Expr], body: Callable[[list[Expr]], Stmt]) -> Stmt:
    """As `bind_opaque`, for several values in turn."""

    def step(known: list[Expr]) -> Stmt:
        if len(known) == len(values):
            return body(known)
        return bind_opaque(name, values[len(known)], lambda value: step([*known, value]))

    return step([])


def bind_all(values: Table, body: Callable[[Table], Stmt]) -> Stmt:
    """`body` with a fresh variable for each of those in `values`, computed once."""
    table = {var: tirx.Var(var.name, "int64") for var in values}
    return seq(*(tirx.Bind(table[var], value) for var, value in values.items()), body(table))


def bind_each(name: str, values: Sequence[Expr], body: Callable[[list[Any]], Stmt]) -> Stmt:
    """`body` with a fresh variable for each of the values, under numbered names."""
    variables = [tirx.Var(f"{name}{i}", "int64") for i in range(len(values))]
    return seq(*map(tirx.Bind, variables, values), body(variables))


def unfuse(index: Expr, extents: Sequence[Expr]) -> list[Expr]:
    """The indices of each loop, given that of their fusion, outermost first."""
    found: list[Expr] = []
    for position, extent in enumerate(reversed(extents)):
        last = position == len(extents) - 1
        # Rounding down takes LLVM seconds where the divisor is not known; indices are not negative,
        # so this is the same.
        known = as_int(extent) is not None
        found.append(index if last else (tirx.floormod if known else tirx.truncmod)(index, extent))
        index = index if last else (tirx.floordiv if known else tirx.truncdiv)(index, extent)
    return found[::-1]


def product(extents: Sequence[Expr]) -> Expr:
    """The product of the extents, 1 of none."""
    result: Expr = const(1)
    for extent in extents:
        result = extent if as_int(result) == 1 else result * extent
    return result
