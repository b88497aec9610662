"""Machine code and virtual machine code from a lowered module."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import tvm
from tvm import relax
from tvm.relax import vm_build
from tvm.tirx.build import split_host_device_mods, tir_to_runtime

from compiler.codegen.cubin import Kernels, Pack, cuda_source, packing
from compiler.codegen.failing import failures
from compiler.codegen.kernel_cache import KernelCache
from compiler.codegen.side_by_side import compile_each, generate_code, modules_of, objects_of
from compiler.codegen.tail_calls import without_tail_calls
from compiler.passes.framework.observers import Observer
from compiler.passes.gpu.trial import sources_only
from compiler.passes.manager import CODE_CONFIG, Lowering
from compiler.passes.pipelines import has_object_by_kernel
from compiler.targets import Target
from compiler.toolchain.cuda import compile_kernels


def generate(
    module: tvm.IRModule,
    target: Target,
    kernels: KernelCache | None = None,
    observers: Sequence[Observer] = (),
) -> relax.VMExecutable:
    """The executable, not linked yet; raises CodegenError.

    kernels: where kernels may be there already. The executable can then be linked, and not run.
    """
    with failures(target):
        builder = relax.ExecBuilder()
        with tvm.transform.PassContext(opt_level=3, config=CODE_CONFIG):
            programs = vm_build._filter_tir(vm_build._vmcodegen(builder, module))
        code = _code(programs, target, kernels, observers) if programs else [None]
        constants = dict((module.attrs or {}).get("const_name_to_constant", {}))
        link, machine = tvm.get_global_func("relax.VMLink"), tvm.target.Target(target.to_tvm())
        executable = relax.VMExecutable(link(builder, machine, code[0], code[1:], constants))
        return without_tail_calls(executable)


def _code(
    programs: tvm.IRModule,
    target: Target,
    kernels: KernelCache | None,
    observers: Sequence[Observer],
) -> list[Any]:
    """The code of the programs: a module for each in the order of their names, or one of all."""
    lowering = Lowering(target, observers=observers)
    if target.device is not None:
        return [_compile_for_grid(programs, target, lowering)]
    if not has_object_by_kernel(target):
        return [generate_code(lowering.lower(programs), target)]
    if kernels is None:
        return compile_each(programs, target, observers)
    compile_missing = partial(objects_of, target=target, observers=observers)
    return modules_of(kernels.compile_all(programs, target, compile_missing))


def _compile_for_grid(programs: tvm.IRModule, target: Target, lowering: Lowering) -> Any:
    """The module of the functions that launch kernels, with the kernels in it."""
    machine = tvm.target.Target(target.to_tvm())
    host, devices = split_host_device_mods(lowering.lower_loops(programs))
    finished = {device: lowering.finish_device(part) for device, part in devices.items()}
    processor = tvm.target.Target(machine.host or "llvm")
    with tvm.transform.PassContext(opt_level=3), sources_only():
        return tir_to_runtime(lowering.finish_host(host), finished, processor)


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
