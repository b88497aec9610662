"""Code of equal loops, whatever parameters and dims are called."""

import tvm
from tvm import te, tirx, topi

from compiler.codegen.side_by_side import compile_each
from tests.compiler.conftest import HOST


def code(x: str, dim: str, scale: str) -> str:
    """The assembly of a program with a number beside its buffers, and an axis of two dims."""
    n, m = (tirx.Var(f"{dim}{i}", "int64") for i in range(2))
    shift = tirx.Var(scale, "int64")
    data = te.placeholder((n, m, n + m, 3), name=x)
    result = topi.add(topi.exp(data), shift.astype("float32"))
    program = te.create_prim_func([data, shift, result]).with_attr("tirx.is_scheduled", True)
    program = program.with_attr("global_symbol", "kernel")
    [compiled] = compile_each(tvm.IRModule({"kernel": program}), HOST)
    # The debug information, which has the names, is no part of a library.
    assembly, _debug = compiled.inspect_source("asm").split(".debug_", 1)
    return assembly


def test_names_are_not_in_the_code() -> None:
    text = code("picture", "height", "shift")
    assert text == code("x", "n", "count")
    assert "picture" not in text
    assert "height" not in text
