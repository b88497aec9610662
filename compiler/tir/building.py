"""Statements in the order in which they run: `with serial(n) as i:` opens a loop.

The vocabulary of TVM's script builder for the bodies of functions, over the statement nodes
themselves: a loop of no or one iteration and a branch decided at compile time leave nothing behind,
intrinsics are put into vector form, and loops that exist in several versions are generators.

    with statements() as body:
        with parallel(rows, profitable) as task:
            total = alloc([lanes], "float32", "total")
            for k in steps(depth, 4):
                with vectorize(lanes) as lane:
                    store(total, total[lane] + left[task, k] * right[k, lane], lane)
    return body.stmt
"""

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager

import tvm
from tvm import tirx
from tvm.tirx.stmt import ForKind

from compiler.tir.exprs import Expr, Table, as_int, const, dtype_of, to_int64
from compiler.tir.loops import PARALLEL_IF, SHARES, TAKE, TAKE_CODE, TASKS, Stmt, replace_loop, seq
from compiler.tir.stages import Axis
from compiler.tir.vecmath import vectorize_calls


class Statements:
    """A list of statements that grows; `stmt` is what was added, as one statement."""

    def __init__(self) -> None:
        self.added: list[Stmt] = []
        # The branch that `otherwise` may still follow: its condition, and what it decides when
        # that is known.
        self.branch: Expr | None = None

    def add(self, stmt: Stmt) -> None:
        """Append one statement."""
        self.added.append(stmt)
        self.branch = None

    @property
    def stmt(self) -> Stmt:
        """All statements one after the other."""
        return seq(*self.added)


class _Open(threading.local):
    """The lists that grow in this thread, innermost last."""

    def __init__(self) -> None:
        self.lists: list[Statements] = []


_open = _Open()


@contextmanager
def statements() -> Generator[Statements, None, None]:
    """Collect what the body adds, apart from any statements around it."""
    collected = Statements()
    _open.lists.append(collected)
    try:
        yield collected
    finally:
        _close(collected)


def _close(collected: Statements) -> None:
    """Take a list off, with those left above it.

    After an error in the body of a `for`, Python closes the generator that opened a list only once
    the traceback is gone, which may be after the lists around it were closed.
    """
    for depth, one in enumerate(_open.lists):
        if one is collected:
            del _open.lists[depth:]
            return


def emit(stmt: Stmt) -> None:
    """Add a statement that exists already to the innermost open list."""
    _open.lists[-1].add(stmt)


def _emit_all(collected: Statements) -> None:
    for stmt in collected.added:
        emit(stmt)


@contextmanager
def _loop(extent: Expr | int, kind: ForKind, name: str) -> Generator[Expr, None, None]:
    count = as_int(extent)
    once = count == 1 and kind != ForKind.PARALLEL
    var = const(0) if once else tirx.Var(name, "int64")
    with statements() as body:
        yield var
    if once:
        _emit_all(body)
    elif count != 0:
        limit = extent if count is None else const(count)
        emit(tirx.For(var, const(0), limit, kind, body.stmt))


@contextmanager
def serial(extent: Expr | int, name: str = "i") -> Generator[Expr, None, None]:
    """for i in range(extent), where i is 0 itself if it can be nothing else."""
    with _loop(extent, ForKind.SERIAL, name) as index:
        yield index


@contextmanager
def vectorize(lanes: int, name: str = "lane") -> Generator[Expr, None, None]:
    """One vector statement of `lanes` lanes."""
    with _loop(lanes, ForKind.VECTORIZED, name) as lane:
        yield lane


@contextmanager
def parallel(
    extent: Expr | int, parallel_if: Expr | bool, name: str = "i"
) -> Generator[Expr, None, None]:
    """for i in range(extent), whose iterations are independent: over the threads where
    `parallel_if` holds, which may be known at run time alone. The loop is serial with an attribute
    until kernels become functions (OutlineLoops, MakeCFunctions).

    Each thread begins with a share of its own, the same from loop to loop, and then takes what the
    others have not begun (affinity scheduling, Markatos and LeBlanc 1994). So a thread finds in its
    cache what it wrote in the loop before, if tasks lie in the order of the rows, and one that
    wakes late, or whose core also does other work, holds nobody up.
    """
    if as_int(parallel_if) == 0 or as_int(extent) in (0, 1):
        with serial(extent, name) as task:
            yield task
        return
    with statements() as tasks, serial(extent, name) as task:
        yield task
    loop = replace_loop(tasks.stmt, annotations={TASKS: True})
    condition = parallel_if if as_int(parallel_if) is None else tirx.IntImm("bool", 1)
    emit(tirx.AttrStmt(const(0), PARALLEL_IF, condition, loop))


@contextmanager
def shares(extent: Expr) -> Generator[tuple[Expr, Expr], None, None]:
    """Each share of the tasks below the extent, over the threads: its first task, and where it
    ends.
    """
    taken = alloc([SHARES + 1], "int32", "taken")
    with serial(SHARES + 1) as i:
        store(taken, tirx.const(0, "int32"), i)
    with statements() as launch, _loop(SHARES, ForKind.PARALLEL, "worker") as worker:
        first = alloc([1], "int64", "first")
        state = alloc([2], "int64", "state")
        store(state, const(0), const(0))
        flags, share = tirx.address_of(taken[0]), tirx.address_of(state[0])
        take = tirx.call_extern("int64", TAKE, flags, extent, worker, share)
        store(first, take, const(0))
        with statements() as run:
            yield let("start", first[0]), state[1]
            store(first, take, const(0))
        emit(tirx.While(first[0] >= const(0), run.stmt))
    emit(tirx.AttrStmt(const(0), "pragma_import_llvm", TAKE_CODE, launch.stmt))


@contextmanager
def when(condition: Expr | bool) -> Generator[None, None, None]:
    """if condition: ...; without a branch if the condition is known."""
    with statements() as then:
        yield
    known = as_int(condition)
    if known is None:
        emit(tirx.IfThenElse(condition, then.stmt, None))
    elif known:
        _emit_all(then)
    _open.lists[-1].branch = condition


@contextmanager
def otherwise() -> Generator[None, None, None]:
    """The `else` of the `when` just before it."""
    around = _open.lists[-1]
    condition = around.branch
    assert condition is not None, "`otherwise` follows no `when`"
    with statements() as body:
        yield
    known = as_int(condition)
    if known is None:
        branch = around.added.pop()
        emit(tirx.IfThenElse(condition, branch.then_case, body.stmt))
    elif not known:
        _emit_all(body)


def alloc(shape: Sequence[int | Expr], dtype: str, name: str, scope: str = "local") -> tirx.Buffer:
    """A new buffer: `local` is on the stack, `global` from the thread's workspace pool."""
    buffer = tirx.decl_buffer(to_int64(shape), dtype, name=name, scope=scope)
    emit(allocation(buffer))
    return buffer


def allocation(buffer: tirx.Buffer) -> Stmt:
    """The statement that allocates a buffer where its scope says."""
    # Without this annotation TVM takes small buffers from the heap as well, and LLVM then cannot
    # keep them in registers.
    stack = {"disable_lower_builtin": tirx.IntImm("bool", 1)}
    return tirx.AllocBuffer(buffer, stack if buffer.scope() == "local" else None)


def store(buffer: tirx.Buffer, value: Expr | float, *indices: Expr | int) -> None:
    """buffer[indices] = value; a number takes the type of the buffer."""
    if isinstance(value, int | float):
        value = tirx.const(value, dtype_of(buffer))
    emit(tirx.BufferStore(buffer, vectorize_calls(value), to_int64(indices)))


def prefetch(
    buffer: tirx.Buffer, index: Expr | Sequence[Expr], level: int = 2, write: bool = False
) -> None:
    """Ask the cache of that level, 1 to 3, for the line at buffer[index], inside the buffer or
    not; write: it is going to be written.
    """
    keep, data = 4 - level, 1
    indices = to_int64(index) if isinstance(index, Sequence) else [index]
    address = tirx.address_of(tirx.BufferLoad(buffer, indices))
    asked = tirx.call_intrin("void", "tirx.prefetch", address, int(write), keep, data)
    emit(tirx.Evaluate(asked))


def let(name: str, value: Expr) -> Expr:
    """A variable computed once; constants and variables stand for themselves."""
    if as_int(value) is not None or isinstance(value, tvm.ir.Var):
        return value
    return fresh(name, value)


def fresh(name: str, value: Expr) -> Expr:
    """A new variable, whatever the value is."""
    var = tirx.Var(name, "int64")
    emit(tirx.Bind(var, value))
    return var


def let_opaque(name: str, value: Expr) -> Expr:
    """`let`, by way of memory, so that TVM's analyzer sees no expression behind the value. A
    variable stands for itself: of one that `let` or `let_all` made, TVM knows what it was given.

    Its modular analysis divides by zero ("Check failed: y != 0") where nested ceilings meet a count
    with a constant factor; LLVM turns the buffer back into a register.
    """
    if as_int(value) is not None or isinstance(value, tvm.ir.Var):
        return value
    return _by_memory(name, value)


def _by_memory(name: str, value: Expr) -> Expr:
    cell = alloc([1], "int64", name)
    store(cell, value, const(0))
    return let(name, cell[const(0)])


def let_all(values: Table) -> Table:
    """A new variable, of the same name, for each of the variables in `values`."""
    table = {var: tirx.Var(var.name, "int64") for var in values}
    for var, value in values.items():
        emit(tirx.Bind(table[var], value))
    return table


def let_all_opaque(values: Table) -> Table:
    """`let_all`, by way of memory like `let_opaque`, for variables, too: StmtSimplify would put the
    divisions that they were given into every address.
    """
    return {var: _by_memory(var.name, value) for var, value in values.items()}


def blocks(extent: Expr | int, lanes: int, name: str = "block") -> Iterator[tuple[Expr, int]]:
    """(start, width) of every block of the extent: `lanes` wide, then smaller ones for the rest.

    The rest of a known extent is taken in powers of two, that of an unknown one singly.
    """
    count = as_int(extent)
    if lanes == 1:
        with serial(extent, name) as start:
            yield start, 1
    elif count is None:
        full = extent // const(lanes)
        with serial(full, name) as block:
            yield block * const(lanes), lanes
        with serial(extent - full * const(lanes), name + "_rest") as i:
            yield full * const(lanes) + i, 1
    else:
        start, width = 0, lanes
        while width >= 1:
            full = (count - start) // width
            if full:
                with serial(full, name) as block:
                    yield const(start) + block * const(width), width
                start += full * width
            width //= 2


def strips(extent: Expr | int, lanes: int, name: str = "j") -> Iterator[Expr]:
    """Every index below the extent, in vectors of `lanes` and smaller ones for the rest."""
    for start, width in blocks(extent, lanes, name):
        with vectorize(width) as lane:
            yield start + lane


def across(width: int, lanes: int) -> Iterator[Expr]:
    """Every lane of `width`, a multiple of `lanes`, in vectors of `lanes`.

    One vector statement each: LLVM makes poor code of a vector whose width is no power of two.
    """
    for start in range(0, width, lanes):
        with vectorize(lanes) as lane:
            yield const(start) + lane


def tile(rows: int, width: int, lanes: int) -> Iterator[tuple[int, Expr]]:
    """(row, lane) for every place of a register tile, row by row, each in vectors of `lanes`."""
    for row in range(rows):
        for lane in across(width, lanes):
            yield row, lane


def steps(
    length: Expr,
    unroll: int,
    multiple: int = 1,
    name: str = "k",
    between: Callable[[Expr], None] | None = None,
) -> Iterator[Expr]:
    """Every k below `length`, `unroll` of them in a row between two looks at the loop's end.

    multiple: what `length` is known to be a multiple of; if `unroll` divides it there is no rest.
    between: emits what precedes each whole group of steps, given the group's number.
    """
    known = as_int(length)
    groups, rest = (
        (tirx.truncdiv(length, const(unroll)), tirx.truncmod(length, const(unroll)))
        if known is None
        else (const(known // unroll), const(known % unroll))
    )
    with serial(groups, name) as group:
        if between is not None:
            between(group)
        for step in range(unroll):
            yield group * const(unroll) + const(step)
    if multiple % unroll:
        with serial(rest, name) as k:
            yield groups * const(unroll) + k


def nest(axes: Sequence[Axis], bound: Table | None = None) -> Iterator[Table]:
    """Serial loops over the axes, the first outermost: yields the position of each axis' variable.

    bound: positions of other variables, which the yielded table holds as well.
    """
    values = bound or {}
    if not axes:
        yield values
        return
    first, *rest = axes
    with serial(first.extent, first.var.name) as i:
        yield from nest(rest, {**values, first.var: i})
