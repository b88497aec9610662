"""Machine code and virtual machine code from a lowered module."""

import tvm
from tvm import relax

from compiler.errors import CodegenError
from compiler.lower import tvm_target
from compiler.passes import host_code
from compiler.passes.noalias import no_alias
from compiler.passes.pipeline import CODEGEN_CONFIG
from compiler.stages import summary
from compiler.targets import Target


def generate(module: tvm.IRModule, target: Target) -> relax.VMExecutable:
    """The executable, not linked yet; raises CodegenError."""
    try:
        with tvm.transform.PassContext(opt_level=3, config=CODEGEN_CONFIG):
            return relax.build(
                no_alias(module), tvm.target.Target(tvm_target(target)), relax_pipeline=None, tir_pipeline=host_code.register()
            )
    except MemoryError:
        raise
    except Exception as error:
        raise CodegenError(
            f"code generation for {target.name}: {summary(error)}",
            reason="failed",
            hint="the build's log has the whole story",
        ) from error


def llvm_version() -> str:
    """The LLVM that TVM was linked with, as in `22`."""
    return str(tvm.get_global_func("target.llvm_version_major")())
