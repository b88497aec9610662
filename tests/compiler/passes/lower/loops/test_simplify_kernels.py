"""Which kernels have their statements simplified."""

import tvm
import tvm_ffi
from tvm import tirx

from compiler import targets
from compiler.passes.framework.attributes import FAMILY
from compiler.passes.lower.loops.simplify_kernels import SimplifyKernels
from compiler.passes.manager import Lowering, to_kernels
from compiler.tir.exprs import as_int
from tests.compiler.conftest import build_module
from tests.compiler.passes.cpu.families.test_attention import plain


def test_statements_of_some_families_are_simplified() -> None:
    """Attention over 197 keys took twice as long with its conditions on constants written out."""
    store = tirx.Evaluate(tirx.call_extern("int32", "touched"))
    program = tirx.PrimFunc([], tirx.IfThenElse(tirx.const(True), store, None))
    module = tvm.IRModule(
        {name: program.with_attr(FAMILY, name) for name in ("attention", "matmul")}
    )
    done = SimplifyKernels().apply(module)
    assert isinstance(done["matmul"].body, tirx.IfThenElse)
    assert isinstance(done["attention"].body, tirx.Evaluate)


def test_addresses_of_attention_do_not_divide() -> None:
    """Simplified statements held the quotients of a task in each of their addresses: 3,009
    divisions by what only run time knows, where about a hundred are left, and MiniLM's kernel took
    15 s to lower and LLVM 5.
    """
    shapes = {"q": ("b", "m", 64), "k": ("b", "n", 64), "v": ("b", "n", 64)}
    module = build_module(plain, {name: (shape, "float32") for name, shape in shapes.items()})
    target = targets.resolve("x86-64-v4")
    kernels = {
        gvar: kernel
        for gvar, kernel in to_kernels(module, target, {}).functions.items()
        if kernel.attrs and kernel.attrs.get(FAMILY) == "attention"
    }
    (lowered,) = Lowering(target).lower_loops(tvm.IRModule(kernels)).functions.values()
    divisions: list[tvm.ir.Expr] = []
    kinds = (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)
    tvm_ffi.structural_walk(lowered.body, (kinds, divisions.append), order="pre")
    assert sum(as_int(division.b) is None for division in divisions) < 200
