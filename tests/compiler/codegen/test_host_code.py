"""Functions between quantised tensors, as ONNX Runtime's quantiser leaves them: every value goes
through integers and back.
"""

import subprocess
import sys

import numpy as np
import onnx
import pytest
import tvm
import tvm_ffi
from onnx import helper
from tvm import tirx

from compiler import targets
from compiler.codegen import host_code
from compiler.codegen.generate import generate
from compiler.ir import import_model
from compiler.passes.framework.kernel_notes import FAMILY
from compiler.passes.manager import lower, to_kernels
from compiler.tir.exprs import as_int
from relaxd.contract.request import CompileRequest
from tests.compiler.conftest import assembly, build_module
from tests.compiler.ir.onnx.running import model_of, normal
from tests.compiler.passes.cpu.families.test_attention import plain
from tests.compiler.passes.lowered import assert_like_onnxruntime

FUNCTIONS = ("Sigmoid", "Tanh", "Erf", "Exp")


def pair(name: str, scale: str, zero: str) -> list[onnx.NodeProto]:
    """Nodes that quantise `name` and make floats of it again."""
    return [
        helper.make_node("QuantizeLinear", [name, scale, zero], [f"{name}_integers"]),
        helper.make_node("DequantizeLinear", [f"{name}_integers", scale, zero], [f"{name}_floats"]),
    ]


def between(function: str) -> onnx.ModelProto:
    constants = {
        "in": np.float32(0.05),
        "out": np.float32(1 / 64),
        "middle": np.uint8(128),
        "low": np.uint8(64),
    }
    call = helper.make_node(function, ["x_floats"], ["y"])
    nodes = [*pair("x", "in", "middle"), call, *pair("y", "out", "low")]
    return model_of(nodes, {"x": "float32[n,16,h,w]"}, constants, outputs=["y_floats"])


@pytest.mark.parametrize("function", FUNCTIONS)
def test_results_are_as_in_onnxruntime(function: str) -> None:
    feeds = [{"x": normal(*shape)} for shape in ((1, 16, 1, 1), (2, 16, 7, 5), (3, 16, 33, 31))]
    # A value halfway between two integers may be rounded to either: one step of the scale.
    assert_like_onnxruntime(between(function), feeds, tolerance=1 / 63)


def test_rounding_is_done_in_vectors() -> None:
    target = targets.resolve("x86-64-v3")
    imported = import_model(between("Sigmoid"), CompileRequest.of())
    executable = generate(lower(imported.module, target, imported.ranges), target)
    assert "vroundps" in assembly(executable)


def test_statements_of_some_families_are_simplified() -> None:
    """Attention over 197 keys took twice as long with its conditions on constants written out."""
    store = tirx.Evaluate(tirx.call_extern("int32", "touched"))
    plain = tirx.PrimFunc([], tirx.IfThenElse(tirx.const(True), store, None))
    given = tvm.IRModule({name: plain.with_attr(FAMILY, name) for name in ("attention", "matmul")})
    done = host_code.simplified(given)
    assert isinstance(done["matmul"].body, tirx.IfThenElse)
    assert isinstance(done["attention"].body, tirx.Evaluate)


@pytest.mark.parametrize("name", ["x86-64-v3", "riscv64-v"])
def test_loops_become_vectors_as_in_tvm(name: str) -> None:
    """With RISC-V's vectors TVM splits a loop by their length, which only its target says."""
    x, y = (tirx.decl_buffer([8], "float32", label) for label in "xy")
    lane = tirx.Var("lane", "int32")
    copied = tirx.BufferStore(y, tirx.BufferLoad(x, [lane]), [lane])
    loop = tirx.For(lane, 0, 8, tirx.stmt.ForKind.VECTORIZED, copied)
    target = tvm.target.Target(targets.resolve(name).to_tvm())
    given = tvm.IRModule({"main": tirx.PrimFunc([x, y], loop).with_attr("target", target)})
    done = host_code.vectorized(given)
    tvm.ir.assert_structural_equal(done, tirx.transform.VectorizeLoop(True)(given))
    assert ("vscale" in done.script()) == (name == "riscv64-v")


def test_addresses_of_attention_do_not_divide() -> None:
    """Simplified statements held the quotients of a task in each of their addresses: 3,009
    divisions by what only run time knows, where about a hundred are left, and MiniLM's kernel took
    15 s to lower and LLVM 5.
    """
    shapes = {"q": ("b", "m", 64), "k": ("b", "n", 64), "v": ("b", "n", 64)}
    given = build_module(plain, {name: (shape, "float32") for name, shape in shapes.items()})
    target = targets.resolve("x86-64-v4")
    machine = tvm.target.Target(target.to_tvm())
    bound = tirx.transform.BindTarget(machine.with_host(machine))
    kernels = {
        gvar: kernel
        for gvar, kernel in to_kernels(given, target, {}).functions.items()
        if kernel.attrs and kernel.attrs.get(FAMILY) == "attention"
    }
    steps = tvm.ir.transform.Sequential([bound, *host_code.lowering_steps()])
    (lowered,) = steps(tvm.IRModule(kernels)).functions.values()
    divisions: list[tvm.ir.Expr] = []
    kinds = (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)
    tvm_ffi.structural_walk(lowered.body, (kinds, divisions.append), order="pre")
    assert sum(as_int(division.b) is None for division in divisions) < 200


def test_threads_mark_functions_once() -> None:
    """In a process of its own, where nothing is marked yet."""
    program = """
import time
from concurrent.futures import ThreadPoolExecutor
import tvm
from compiler.codegen import host_code
register = tvm.ir.register_op_attr
def slowly(*given):
    time.sleep(0.05)
    return register(*given)
tvm.ir.register_op_attr = slowly
with ThreadPoolExecutor(8) as pool:
    list(pool.map(lambda _: host_code.mark_vector_calls(), range(8)))
assert tvm.ir.Op.get("tirx.rsqrt").get_attr("TVectorizable")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
