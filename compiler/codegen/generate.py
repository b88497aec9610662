"""Machine code and virtual machine code from a lowered module."""

from collections.abc import Callable
from functools import partial
from typing import Any

import tvm
from tvm import relax
from tvm.relax import vm_build

from compiler.codegen import host_code
from compiler.codegen.cubin import Kernels, Pack, cuda_source, packing
from compiler.codegen.kernel_cache import KernelCache
from compiler.codegen.noalias import no_alias
from compiler.codegen.side_by_side import compile_each, modules_of, objects_of
from compiler.codegen.tail_calls import without_tail_calls
from compiler.passes.gpu.trial import sources_only
from compiler.targets import ObjectFormat, Runtime, Target
from compiler.toolchain.cuda import compile_kernels


def generate(
    module: tvm.IRModule, target: Target, kernels: KernelCache | None = None
) -> relax.VMExecutable:
    """The executable, not linked yet; raises CodegenError.

    kernels: where kernels may be there already. The executable can then be linked, and not run.
    """
    with host_code.failures(target):
        machine, given = tvm.target.Target(target.to_tvm()), no_alias(module)
        if target.device is not None:
            made = _build_for_device(given, machine)
        elif is_apart(target):
            made = _side_by_side(given, machine, partial(_code, target, kernels))
        else:
            made = _as_one_module(given, machine)
        return without_tail_calls(made)


def is_apart(target: Target) -> bool:
    """Whether each kernel is an object of its own.

    The functions that a system library registers are one module's; and objects for Windows cannot
    have conversions of 16-bit floats each.
    """
    platform = target.platform
    return (
        target.device is None
        and platform.runtime is not Runtime.LINKED
        and platform.object_format is not ObjectFormat.COFF
    )


def _as_one_module(module: tvm.IRModule, target: tvm.target.Target) -> relax.VMExecutable:
    with tvm.transform.PassContext(opt_level=3, config=host_code.CONFIG):
        return relax.build(module, target, relax_pipeline=None, tir_pipeline=host_code.register())


def _code(target: Target, kernels: KernelCache | None, programs: tvm.IRModule) -> list[Any]:
    """The code of each program, in the order of their names."""
    machine = tvm.target.Target(target.to_tvm())
    if kernels is None:
        return compile_each(programs, machine)
    return modules_of(kernels.compiled(programs, target, partial(objects_of, target=machine)))


def _side_by_side(
    module: tvm.IRModule,
    target: tvm.target.Target,
    compiled: Callable[[tvm.IRModule], list[Any]],
) -> relax.VMExecutable:
    with tvm.transform.PassContext(opt_level=3, config=host_code.CONFIG):
        builder = relax.ExecBuilder()
        programs = vm_build._filter_tir(vm_build._vmcodegen(builder, module))
        code = compiled(programs) if programs else [None]
        constants = dict((module.attrs or {}).get("const_name_to_constant", {}))
        link = tvm.get_global_func("relax.VMLink")
        return relax.VMExecutable(link(builder, target, code[0], code[1:], constants))


def _build_for_device(module: tvm.IRModule, target: tvm.target.Target) -> relax.VMExecutable:
    with tvm.transform.PassContext(opt_level=3), sources_only():
        return relax.build(module, target, relax_pipeline=None)


def device_code(executable: relax.VMExecutable, target: Target) -> Pack | None:
    """How to embed an executable's kernels: as machine code for CUDA, None where TVM's own way will
    do.

    Raises CodegenError, or ToolchainMissing where no CUDA compiler is installed.
    """
    source = cuda_source(executable) if target.kind == "cuda" else None
    if source is None or target.device is None or target.device.sm is None:
        return None
    return packing(Kernels(source, compile_kernels(source, target.device.sm)))


def llvm_version() -> str:
    """The LLVM that TVM was linked with, as in `22`."""
    return str(tvm.get_global_func("target.llvm_version_major")())
