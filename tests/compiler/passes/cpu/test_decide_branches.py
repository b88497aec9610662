import re
from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax

from compiler.codegen.generate import generate
from compiler.passes.cpu.decide_branches import DecideBranches
from compiler.passes.manager import lower
from compiler.tir.loops import PARALLEL_IF
from relaxd.contract.dims.dims import Dim
from tests.compiler.conftest import HOST, build_module
from tests.compiler.ranges import ranges_of

_WEIGHTS = np.random.default_rng(0).standard_normal((96, 120)).astype(np.float32)
_ASKS = re.compile(rf'T\.attr\(.*"{PARALLEL_IF}", .* >= T\.int64\(\d{{6,}}\)\)')
"""A loop whose work may be too little for other threads."""
_PARALLEL = f'"{PARALLEL_IF}", '


def _matmul() -> tvm.IRModule:
    return build_module(
        lambda _, x: relax.op.matmul(x, relax.const(_WEIGHTS)), {"x": (("b", "s", 96), "float32")}
    )


def _additions() -> tvm.IRModule:
    """One program, x + x, called for [n, 1024] and for [m, 1024]."""

    def add_all(builder: relax.BlockBuilder, x: relax.Var, y: relax.Var) -> relax.Expr:
        return relax.Tuple([builder.emit(relax.op.add(x, x)), builder.emit(relax.op.add(y, y))])

    return build_module(add_all, {"x": (("n", 1024), "float32"), "y": (("m", 1024), "float32")})


def _ways(module: tvm.IRModule, *dims: Dim) -> tuple[bool, bool]:
    """(True if a program has a branch, True if a loop is parallel)."""
    text = lower(module, HOST, ranges_of(module, *dims)).script()
    return _ASKS.search(text) is not None, _PARALLEL in text


def test_a_branch_stays_where_declared_dims_go_both_ways() -> None:
    assert _ways(_matmul(), Dim("b", 1, 64), Dim("s", 1, 512)) == (True, True)


def test_a_branch_stays_where_no_dim_is_declared() -> None:
    assert _ways(_matmul()) == (True, True)


def test_one_way_is_left_where_every_declared_value_takes_it() -> None:
    assert _ways(_matmul(), Dim("b", 64, 64), Dim("s", 64, None)) == (False, True)
    assert _ways(_matmul(), Dim("b", 1, 2), Dim("s", 1, 16)) == (False, False)


def test_the_least_allowed_multiple_decides() -> None:
    rows = (1 << 20) // (2 * 96 * 120) + 1
    assert _ways(_matmul(), Dim("b", 1, 1), Dim("s", 2, None, multiple=rows)) == (False, True)
    assert _ways(_matmul(), Dim("b", 1, 1), Dim("s", 2, None, multiple=rows - 1)) == (True, True)


@pytest.mark.parametrize(
    ("n", "m", "ways"),
    [
        ((1, 2), (4096, None), (True, True)),
        ((2048, 4096), (4096, None), (False, True)),
        ((1, 2), (1, 3), (False, False)),
    ],
)
def test_all_calls_of_a_program_count(
    n: tuple[int, int], m: tuple[int, int | None], ways: tuple[bool, bool]
) -> None:
    assert _ways(_additions(), Dim("n", *n), Dim("m", *m)) == ways


def test_a_dim_of_another_function_that_has_a_declared_name_is_not_it() -> None:
    module = _additions()
    renamed = tvm.IRModule(
        {"helper": module["main"].with_attr("global_symbol", "helper"), "main": _matmul()["main"]}
    )
    dims = (Dim("n", 1, 2), Dim("m", 1, 3), Dim("b", 1, 2), Dim("s", 1, 16))
    assert _ways(renamed, *dims) == (True, True)


def test_results_are_the_same_either_way(draw: np.random.Generator) -> None:
    x = draw.standard_normal((2, 300, 96)).astype(np.float32)
    for dims in ((), (Dim("b", 1, 64), Dim("s", 300, 512)), (Dim("b", 2, 2), Dim("s", 1, 300))):
        module = _matmul()
        lowered = lower(module, HOST, ranges_of(module, *dims))
        machine = relax.VirtualMachine(generate(lowered, HOST), tvm.cpu())
        np.testing.assert_allclose(
            machine["main"](tvm.runtime.tensor(x)).numpy(), x @ _WEIGHTS, rtol=1e-4, atol=1e-4
        )


def _cell(condition: Callable[[tvm.tirx.Var], object], pointed: bool = False) -> tvm.IRModule:
    """A program of [n] that puts n, by way of a cell, into a variable and branches on it;
    `pointed`: other code may write the cell.
    """
    n = tvm.tirx.Var("n", "int64")
    x, y = (tvm.tirx.decl_buffer((n,), "float32", name) for name in "xy")
    cell, v = tvm.tirx.decl_buffer((1,), "int64", "cell", scope="local"), tvm.tirx.Var("v", "int64")
    zero = tvm.tirx.const(0, "int64")

    def put(value: float) -> tvm.tirx.Stmt:
        return tvm.tirx.BufferStore(y, tvm.tirx.const(value, "float32"), [zero])

    body = tvm.tirx.SeqStmt(
        [
            tvm.tirx.AllocBuffer(cell),
            tvm.tirx.BufferStore(cell, n, [zero]),
            *(
                [
                    tvm.tirx.Evaluate(
                        tvm.tirx.call_extern("int64", "look", tvm.tirx.address_of(cell[0]))
                    )
                ]
                if pointed
                else []
            ),
            tvm.tirx.Bind(v, cell[zero]),
            tvm.tirx.IfThenElse(condition(v), put(1.0), put(2.0)),
        ]
    )
    builder = relax.BlockBuilder()
    parameter = relax.Var("given", relax.TensorType([n], "float32"))
    with builder.function("main", [parameter]):
        name = builder.add_func(tvm.tirx.PrimFunc([x, y], body), "program")
        result = builder.emit(relax.call_tir(name, [parameter], relax.TensorType([n], "float32")))
        builder.emit_func_output(result)
    return builder.get()


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        (lambda v: v >= 4, (1.0,)),
        (lambda v: v > 8, (2.0,)),
        (lambda v: v <= 8, (1.0,)),
        (lambda v: v < 4, (2.0,)),
        (lambda v: tvm.tirx.all(v >= 4, v < 4), (2.0,)),
        (lambda v: tvm.tirx.all(v >= 4, v < 5), (1.0, 2.0)),
        (lambda v: v > 4, (1.0, 2.0)),
        (lambda v: v >= 8, (1.0, 2.0)),
        (lambda v: v // 2 >= 0, (1.0, 2.0)),
    ],
)
def test_cells_and_variables_are_seen_through(
    condition: Callable[[tvm.tirx.Var], object], left: tuple[float, ...]
) -> None:
    assert _left(_cell(condition)) == left


def test_a_cell_that_other_code_may_write_is_not() -> None:
    assert _left(_cell(lambda v: v >= 4, pointed=True)) == (1.0, 2.0)


def _left(module: tvm.IRModule) -> tuple[float, ...]:
    """The constants that the program may still store."""
    text = DecideBranches(ranges_of(module, Dim("n", 4, 8))).apply(module).script()
    values = tuple(value for value in (1.0, 2.0) if f"T.float32({value})" in text)
    assert ("if " in text) == (len(values) == 2)
    return values
