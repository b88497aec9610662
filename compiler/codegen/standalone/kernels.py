"""Machine code of a module's tensor programs as C functions, and what each takes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import tvm
from tvm import tirx

from compiler.codegen.failing import failures
from compiler.codegen.kernel_cache import KernelCache
from compiler.codegen.side_by_side import OnDone, apart, each, generate_code, object_of
from compiler.codegen.standalone import elf
from compiler.passes.framework.observers import Observer
from compiler.passes.lower.functions.c_interface import Kernel
from compiler.passes.lower.functions.make_c_functions import c_functions_of
from compiler.passes.manager import Lowering
from compiler.passes.pipelines import Interface
from compiler.targets import Target
from relaxd.contract.options import Flavour

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


def compile_kernels(
    module: tvm.IRModule,
    target: Target,
    prefix: str,
    threads: bool,
    observers: Sequence[Observer] = (),
) -> Kernels:
    """Code of every tensor program of the module in one object; raises CodegenError.

    prefix: begins every symbol; threads: whether kernels may share out loops. Without threads every
    loop is serial before it is lowered.
    """
    with failures(target):
        lowering = _lowering(target, prefix, threads, observers)
        table, code = _compile(_programs(module), target, lowering)
        return Kernels(table, [_object(code)])


def compile_apart(
    module: tvm.IRModule,
    target: Target,
    prefix: str,
    kernels: KernelCache | None,
    observers: Sequence[Observer] = (),
) -> Kernels:
    """An object for every tensor program of the module, made on all processors at once; raises
    CodegenError.

    kernels: where some may be there already.
    """
    with failures(target):
        lowering = _lowering(target, prefix, target.threads, observers)
        compile_missing = partial(_describe_each, target=target, lowering=lowering)
        programs = _programs(module)
        objects = (
            kernels.compile_all(programs, target, compile_missing)
            if kernels
            else compile_missing(programs, lambda count: None)
        )
        parts = {name: objects[name].partition(b"\n") for name in sorted(objects)}
        table = {name: Kernel.of_json(json.loads(head)) for name, (head, _, _) in parts.items()}
        return Kernels(table, [code for _, _, code in parts.values()])


def assembly(module: tvm.IRModule, target: Target, *, threads: bool, form: str = "s") -> str:
    """The code of every tensor program as text, in a form that LLVM writes: `s` or `ll`."""
    _, code = _compile(_programs(module), target, _lowering(target, "relaxd", threads))
    return str(code.inspect_source(form))


def _lowering(
    target: Target, prefix: str, threads: bool, observers: Sequence[Observer] = ()
) -> Lowering:
    return Lowering(target, Interface(Flavour.STANDALONE, prefix, threads), observers)


def _describe_each(
    programs: tvm.IRModule, on_done: OnDone, target: Target, lowering: Lowering
) -> dict[str, bytes]:
    """By the name of each program a line that says what its function takes, and its object."""

    def describe(program: tvm.IRModule) -> bytes:
        table, code = _compile(program, target, lowering)
        (kernel,) = table.values()
        return json.dumps(asdict(kernel)).encode() + b"\n" + _object(code)

    modules = apart(programs)
    return dict(zip(modules, each(describe, modules.values(), on_done), strict=True))


def _programs(module: tvm.IRModule) -> tvm.IRModule:
    """The tensor programs of the module alone."""
    programs = {g: f for g, f in module.functions.items() if isinstance(f, tirx.PrimFunc)}
    return tvm.IRModule(programs)


def _compile(
    programs: tvm.IRModule, target: Target, lowering: Lowering
) -> tuple[dict[str, Kernel], Any]:
    """The parameters of each program's function, and a runtime module of them all."""
    functions = lowering.lower(programs)
    return c_functions_of(functions), generate_code(functions, target)


def _object(code: Any) -> bytes:
    """An object without TVM's names, and without tables for unwinding."""
    content = object_of(code)
    for name, ours in _NAMES:
        content = content.replace(name, ours)
    return elf.without(content, b".eh_frame")
