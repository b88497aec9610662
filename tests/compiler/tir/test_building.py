"""The vocabulary of loops: what it leaves out, what it emits twice, and in which order."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import tirx

from compiler.tir import building
from compiler.tir.building import (
    blocks,
    let,
    otherwise,
    parallel,
    serial,
    statements,
    steps,
    store,
    strips,
    when,
)
from compiler.tir.exprs import as_int, const, dtype_of, load
from compiler.tir.loops import PARALLEL_IF, Stmt

MOST = 40


def cells() -> Any:
    return tirx.decl_buffer([const(MOST)], "int64", name="cells")


def index() -> Any:
    return tirx.Var("n", "int64")


def run(body: Stmt, buffer: Any, n: Any, value: int) -> list[int]:
    """The buffer, which is zero before, after the statements where n is `value`."""
    func = tirx.PrimFunc([buffer, n], body).with_attr("global_symbol", "main")
    module = tvm.compile(tvm.IRModule.from_expr(func), target="llvm")
    result = tvm.runtime.tensor(np.zeros(MOST, "int64"))
    module["main"](result, value)
    return list(result.numpy())


def test_loops_of_no_iteration_leave_nothing() -> None:
    buffer = cells()
    with statements() as body, serial(0) as i:
        store(buffer, const(1), i)
    assert body.added == []


def test_a_loop_of_one_iteration_is_its_body_at_0() -> None:
    buffer = cells()
    with statements() as body, serial(1) as i:
        store(buffer, const(1), i)
    (only,) = body.added
    assert isinstance(only, tirx.BufferStore)
    assert int(only.indices[0]) == 0


@pytest.mark.parametrize("known", [True, False])
def test_a_known_branch_is_decided(known: bool) -> None:
    buffer = cells()
    with statements() as body:
        with when(tirx.IntImm("bool", known)):
            store(buffer, const(1), const(0))
        with otherwise():
            store(buffer, const(2), const(0))
    (only,) = body.added
    assert int(only.value) == (1 if known else 2)


def test_an_unknown_branch_keeps_both_sides() -> None:
    buffer, n = cells(), index()
    with statements() as body:
        with when(n > 3):
            store(buffer, const(1), const(0))
        with otherwise():
            store(buffer, const(2), const(0))
    (only,) = body.added
    assert int(only.then_case.value) == 1
    assert int(only.else_case.value) == 2


def test_otherwise_follows_a_branch_at_once() -> None:
    buffer, n = cells(), index()
    with statements():
        with when(n > 3):
            store(buffer, const(1), const(0))
        store(buffer, const(1), const(1))
        with pytest.raises(AssertionError, match="follows no"), otherwise():
            pass


def test_a_parallel_loop_has_its_condition_as_an_attribute() -> None:
    buffer, n = cells(), index()
    with statements() as body, parallel(n, n > 100) as task:
        store(buffer, task, task)
    assert str(body.stmt.attr_key) == PARALLEL_IF
    assert tvm_ffi.structural_equal(body.stmt.value, n > 100)
    for profitable, extent in ((False, n), (n > 100, const(1))):
        with statements() as body, parallel(extent, profitable) as task:
            store(buffer, task, task)
        assert not isinstance(body.stmt, tirx.AttrStmt)


def test_let_names_what_is_computed_and_nothing_else() -> None:
    n = index()
    with statements() as body:
        assert let("same", n) is n
        assert int(let("five", const(5))) == 5
        named = let("sum", n + 1)
    assert isinstance(named, tirx.Var)
    (only,) = body.added
    assert isinstance(only, tirx.Bind)


def test_an_error_in_a_body_leaves_no_list_open() -> None:
    depth = len(building._open.lists)
    with pytest.raises(KeyError), statements(), serial(4):
        raise KeyError
    assert len(building._open.lists) == depth


def test_an_error_in_a_for_leaves_no_list_open() -> None:
    before = list(building._open.lists)
    loop = strips(index(), 8)
    with statements() as around:
        with pytest.raises(KeyError), statements():
            raise KeyError(next(loop))
        loop.close()
        store(cells(), 1, 0)
    assert len(around.added) == 1
    assert building._open.lists == before


def test_numbers_take_the_types_of_buffer_and_index() -> None:
    buffer = tirx.decl_buffer([const(MOST)], "float32", name="numbers")
    with statements() as body:
        store(buffer, 0, 3)
        store(buffer, load(buffer, [4]), index())
    zero, copy = body.added
    assert (dtype_of(zero.value), dtype_of(zero.indices[0])) == ("float32", "int64")
    assert dtype_of(copy.value.indices[0]) == "int64"


@pytest.mark.parametrize(
    ("extent", "lanes", "widths"),
    [(13, 4, [4, 1]), (15, 4, [4, 2, 1]), (8, 8, [8]), (3, 8, [2, 1]), (5, 1, [1])],
)
def test_blocks_of_a_known_extent_halve(extent: int, lanes: int, widths: list[int]) -> None:
    with statements():
        assert [width for _start, width in blocks(const(extent), lanes)] == widths


def test_only_values_that_are_computed_go_through_memory() -> None:
    n = index()
    with statements():
        known, same, named = (building.let_opaque("extent", v) for v in (const(3), n, n + 1))
    assert as_int(known) == 3
    assert same.same_as(n)
    assert isinstance(named, tvm.ir.Var)
    assert named.name == "extent"


def _blocks(extent: Any) -> Iterator[Any]:
    for start, width in blocks(extent, 8):
        with building.vectorize(width) as lane:
            yield start + lane


def _tasks(extent: Any) -> Iterator[Any]:
    with parallel(extent, True) as task:
        yield task


LOOPS: dict[str, Callable[[Any], Iterator[Any]]] = {
    "strips": lambda extent: strips(extent, 8),
    "blocks": _blocks,
    "steps": lambda extent: steps(extent, 4),
    "in parallel": _tasks,
}


@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize("name", LOOPS)
@settings(deadline=None, max_examples=4)
@given(extent=st.integers(0, MOST))
def test_every_index_comes_once(name: str, known: bool, extent: int) -> None:
    buffer, n = cells(), index()
    with statements() as body:
        for i in LOOPS[name](const(extent) if known else n):
            store(buffer, buffer[i] + 1, i)
    assert run(body.stmt, buffer, n, extent) == [1] * extent + [0] * (MOST - extent)
