"""Functions and multiply-adds become LLVM's as by TVM's own pass."""

import tvm
import tvm_ffi
from tvm import tirx

from compiler import targets
from compiler.passes import manager
from compiler.passes.lower.functions.lower_intrinsics import LowerIntrinsics
from compiler.passes.pipelines import pipeline
from tests.compiler.conftest import build_module
from tests.compiler.passes.families import combine

FAMILIES = ("product", "softmax", "layer norm", "attention", "take", "row sums")
"""None whose buffers have extents that divide, which LowerIntrin changes in types as well."""


def test_code_is_as_after_lower_intrin() -> None:
    target = targets.resolve("aarch64")
    kernels = manager.to_kernels(build_module(*combine(FAMILIES)), target, {})
    programs = {g: f for g, f in kernels.functions.items() if isinstance(f, tirx.PrimFunc)}
    names = [step.name for step in pipeline(target, {})]
    first, last = names.index("tirx.BindTarget"), names.index("truncate_divisions")
    steps = pipeline(target, {})[first : last + 1]
    before = manager.run(steps, tvm.IRModule(programs), target=target)
    assert len(before.functions) >= len(FAMILIES)
    expected = tirx.transform.LowerIntrin()(before)
    assert not tvm_ffi.structural_equal(before, expected)
    tvm.ir.assert_structural_equal(LowerIntrinsics().apply(before), expected)
