"""Every tensor program says that its buffers do not overlap."""

import tvm
from tvm import relax
from tvm.script import tirx as T

from compiler.passes.lower.loops.mark_no_alias import MarkNoAlias
from tests.compiler.conftest import build_module


@T.prim_func(private=True, s_tir=True)
def before(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
    for i in range(4):
        y[i] = x[i]


@T.prim_func(private=True, s_tir=True)
def after(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
    T.func_attr({"tirx.noalias": True})
    for i in range(4):
        y[i] = x[i]


def test_programs_are_marked_and_graphs_left() -> None:
    graph = build_module(lambda builder, x: relax.op.exp(x), {"x": (("n",), "float32")})["main"]
    marked = MarkNoAlias().apply(tvm.IRModule({"copy": before, "main": graph}))
    tvm.ir.assert_structural_equal(marked, tvm.IRModule({"copy": after, "main": graph}))
