"""Functions and sums of products become LLVM's as by TVM's own pass."""

import tvm
import tvm_ffi
from tvm import tirx

from compiler import targets
from compiler.codegen import host_code
from compiler.codegen.floors import truncated
from compiler.codegen.intrinsics import intrinsics
from compiler.passes.manager import to_kernels
from tests.compiler.conftest import build_module
from tests.compiler.passes.families import combined

FAMILIES = ("product", "softmax", "layer norm", "attention", "take", "row sums")
"""None whose buffers have extents that divide, which LowerIntrin changes in types as well."""


def test_code_is_as_after_lower_intrin() -> None:
    target = targets.resolve("aarch64")
    machine = tvm.target.Target(target.to_tvm())
    host_code.mark_vector_calls()
    kernels = to_kernels(build_module(*combined(FAMILIES)), target, {})
    steps = [
        tirx.transform.BindTarget(machine.with_host(machine)),
        *host_code.lowering_steps(),
        host_code.step_of(truncated),
    ]
    given = tvm.ir.transform.Sequential(steps)(
        tvm.IRModule(
            {
                gvar: func
                for gvar, func in kernels.functions.items()
                if isinstance(func, tirx.PrimFunc)
            }
        )
    )
    assert len(given.functions) >= len(FAMILIES)
    expected = tirx.transform.LowerIntrin()(given)
    assert not tvm_ffi.structural_equal(given, expected)
    tvm.ir.assert_structural_equal(intrinsics(given), expected)
