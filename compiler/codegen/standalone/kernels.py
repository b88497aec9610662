"""Machine code of a module's tensor programs as plain functions, and what each takes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import tvm
from tvm import tirx

from compiler.codegen import host_code
from compiler.codegen.intrinsics import intrinsics
from compiler.codegen.kernel_cache import KernelCache
from compiler.codegen.noalias import no_alias
from compiler.codegen.pairs import unrolled_pairs
from compiler.codegen.saturating import saturating
from compiler.codegen.side_by_side import apart, each, object_of
from compiler.codegen.standalone import elf
from compiler.codegen.standalone.alone import alone
from compiler.codegen.standalone.narrow_indices import narrow_indices
from compiler.codegen.standalone.plain import Kernel, Plain
from compiler.targets import Target

_NAMES = (
    (b"\0TVMMod\0", b"\0relaxd\0"),
    (b"\0TVM\0IRModule.CodeGenLLVM\0", b"\0___\0IRModule.CodeGenLLVM\0"),
    (b".text.tvm.fp16.conv", b".text.___.fp16.conv"),
)
"""What TVM calls every module, itself and one section, and as many bytes in their place."""


@dataclass(frozen=True)
class Kernels:
    """table: by the name of the program in the module; objects: that hold their code."""

    table: Mapping[str, Kernel]
    objects: Sequence[bytes]


def compile_kernels(module: tvm.IRModule, target: Target, prefix: str, threads: bool) -> Kernels:
    """Code of every tensor program of the module in one object; raises CodegenError.

    prefix: begins every symbol; threads: whether kernels may share out loops. Without threads every
    loop is serial before it is lowered.
    """
    with host_code.failures(target):
        table, code = _compiled(_programs(module), target, prefix, threads)
        return Kernels(table, [_object(code)])


def compile_apart(
    module: tvm.IRModule, target: Target, prefix: str, kernels: KernelCache | None
) -> Kernels:
    """An object for every tensor program of the module, made on all processors at once; raises
    CodegenError.

    kernels: where some may be there already.
    """
    compiled = partial(_described, target=target, prefix=prefix)
    with host_code.failures(target):
        programs = _programs(module)
        found = kernels.compiled(programs, target, compiled) if kernels else compiled(programs)
        parts = {name: found[name].partition(b"\n") for name in sorted(found)}
        table = {name: Kernel.of_json(json.loads(told)) for name, (told, _, _) in parts.items()}
        return Kernels(table, [code for _, _, code in parts.values()])


def assembly(module: tvm.IRModule, target: Target, *, threads: bool, form: str = "s") -> str:
    """The code of every tensor program as text, in a form that LLVM writes: `s` or `ll`."""
    _, code = _compiled(_programs(module), target, "relaxd", threads)
    return str(code.inspect_source(form))


def _described(programs: tvm.IRModule, target: Target, prefix: str) -> dict[str, bytes]:
    """By the name of each program a line that says what its function takes, and its object."""

    def one(program: tvm.IRModule) -> bytes:
        table, code = _compiled(program, target, prefix, target.threads)
        (kernel,) = table.values()
        return json.dumps(asdict(kernel)).encode() + b"\n" + _object(code)

    modules = apart(programs)
    return dict(zip(modules, each(one, modules.values()), strict=True))


def _programs(module: tvm.IRModule) -> tvm.IRModule:
    """The tensor programs of the module alone."""
    programs = {g: f for g, f in module.functions.items() if isinstance(f, tirx.PrimFunc)}
    return no_alias(tvm.IRModule(programs))


def _compiled(
    programs: tvm.IRModule, target: Target, prefix: str, threads: bool
) -> tuple[dict[str, Kernel], Any]:
    """What each program's function takes, and a runtime module of them all."""
    host_code.mark_vector_calls()
    machine = tvm.target.Target(target.to_tvm())
    # A thread has a PassContext of its own.
    with tvm.transform.PassContext(opt_level=3, config=host_code.CONFIG):
        lower = tirx.transform
        named = {
            gvar: func.with_attr("global_symbol", f"{prefix}_k_{gvar.name_hint}")
            for gvar, func in programs.functions.items()
        }
        steps = [
            lower.BindTarget(machine.with_host(machine)),
            *([] if threads else [host_code.step_of(alone)]),
            *(_bare_steps(target) if target.platform.bare else host_code.lowering_steps()),
            *map(host_code.step_of, host_code.ARITHMETIC),
        ]
        lowered = tvm.ir.transform.Sequential(steps)(tvm.IRModule(named))
        plain = Plain(prefix)
        table = {gvar.name_hint: plain.kernel(func) for gvar, func in lowered.functions.items()}
        finished = tvm.ir.transform.Sequential(
            [
                lower.FP8StorageLegalize(),
                lower.BF16StorageLegalize(),
                lower.LowerTVMBuiltin(),
                host_code.step_of(intrinsics),
            ]
        )(tvm.IRModule(plain.functions))
        return table, tvm.get_global_func(f"target.build.{machine.kind.name}")(finished, machine)


def _bare_steps(target: Target) -> list[Any]:
    """The lowering for micro-controllers: addresses of 32 bits."""
    last = [unrolled_pairs] if target.vector_bits else [unrolled_pairs, saturating]
    return host_code.lowering_steps([narrow_indices], last)


def _object(code: Any) -> bytes:
    """An object without TVM's names, and without tables for unwinding."""
    content = object_of(code)
    for name, ours in _NAMES:
        content = content.replace(name, ours)
    return elf.without(content, b".eh_frame")
