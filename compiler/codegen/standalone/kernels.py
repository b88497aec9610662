"""Machine code of a module's tensor programs as plain functions, and what each takes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm import tirx

from compiler.codegen import host_code
from compiler.codegen.intrinsics import intrinsics
from compiler.codegen.noalias import no_alias
from compiler.codegen.pairs import unrolled_pairs
from compiler.codegen.saturating import saturating
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
    """table: by the name of the program in the module."""

    table: dict[str, Kernel]
    code: Any

    def write(self, path: Path) -> None:
        """Write the object file."""
        self.code.write_to_file(str(path), "o")
        content = path.read_bytes()
        for name, ours in _NAMES:
            content = content.replace(name, ours)
        path.write_bytes(elf.without(content, b".eh_frame"))


def compile_kernels(module: tvm.IRModule, target: Target, prefix: str, threads: bool) -> Kernels:
    """Code of every tensor program of the module; raises CodegenError.

    prefix: begins every symbol; threads: whether kernels may share out loops. Without threads every
    loop is serial before it is lowered.
    """
    host_code.mark_vector_calls()
    machine = tvm.target.Target(target.to_tvm())
    context = tvm.transform.PassContext(opt_level=3, config=host_code.CONFIG)
    with host_code.failures(target), context:
        steps = _bare_steps(target) if target.platform.bare else host_code.lowering_steps()
        first = [] if threads else [host_code.step_of(alone)]
        return _compile(module, machine, prefix, [*first, *steps])


def _bare_steps(target: Target) -> list[Any]:
    """The lowering for micro-controllers: addresses of 32 bits."""
    last = [unrolled_pairs] if target.vector_bits else [unrolled_pairs, saturating]
    return host_code.lowering_steps([narrow_indices], last)


def _compile(
    module: tvm.IRModule, target: tvm.target.Target, prefix: str, steps: list[Any]
) -> Kernels:
    programs = {
        gvar: func.with_attr("global_symbol", f"{prefix}_k_{gvar.name_hint}")
        for gvar, func in module.functions.items()
        if isinstance(func, tirx.PrimFunc)
    }
    lower = tirx.transform
    bound = lower.BindTarget(target.with_host(target))
    steps = [bound, *steps, *map(host_code.step_of, host_code.ARITHMETIC)]
    lowered = tvm.ir.transform.Sequential(steps)(no_alias(tvm.IRModule(programs)))
    plain, table = Plain(prefix), {}
    for gvar, func in lowered.functions.items():
        table[gvar.name_hint] = plain.kernel(func)
    finished = tvm.ir.transform.Sequential(
        [
            lower.FP8StorageLegalize(),
            lower.BF16StorageLegalize(),
            lower.LowerTVMBuiltin(),
            host_code.step_of(intrinsics),
        ]
    )(tvm.IRModule(plain.functions))
    build = tvm.get_global_func(f"target.build.{target.kind.name}")
    return Kernels(table, build(finished, target))
