"""Vectorized loops become vector statements as in TVM."""

import subprocess
import sys

import pytest
import tvm
from tvm import tirx

from compiler import targets
from compiler.passes.lower.loops.vectorize_loops import VectorizeLoops


@pytest.mark.parametrize("name", ["x86-64-v3", "riscv64-v"])
def test_loops_become_vectors_as_in_tvm(name: str) -> None:
    """With RISC-V's vectors TVM splits a loop by their length, which only its target says."""
    x, y = (tirx.decl_buffer([8], "float32", label) for label in "xy")
    lane = tirx.Var("lane", "int32")
    copied = tirx.BufferStore(y, tirx.BufferLoad(x, [lane]), [lane])
    loop = tirx.For(lane, 0, 8, tirx.stmt.ForKind.VECTORIZED, copied)
    target = tvm.target.Target(targets.resolve(name).to_tvm())
    module = tvm.IRModule({"main": tirx.PrimFunc([x, y], loop).with_attr("target", target)})
    done = VectorizeLoops().apply(module)
    tvm.ir.assert_structural_equal(done, tirx.transform.VectorizeLoop(True)(module))
    assert ("vscale" in done.script()) == (name == "riscv64-v")


def test_threads_mark_functions_once() -> None:
    """In a process of its own, where nothing is marked yet."""
    program = """
import time
from concurrent.futures import ThreadPoolExecutor
import tvm
from compiler.passes.lower.loops.vectorize_loops import mark_vector_calls
register = tvm.ir.register_op_attr
def slowly(*given):
    time.sleep(0.05)
    return register(*given)
tvm.ir.register_op_attr = slowly
with ThreadPoolExecutor(8) as pool:
    list(pool.map(lambda _: mark_vector_calls(), range(8)))
assert tvm.ir.Op.get("tirx.rsqrt").get_attr("TVectorizable")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
