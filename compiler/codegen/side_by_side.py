"""Machine code of tensor programs, each a module of LLVM's of its own, made on all processors at
once.

What a program's code is depends on that program alone: neither on the other ones, nor on how many
processors there were.
"""

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import tvm

from compiler.passes.framework.observers import Observer
from compiler.passes.manager import CODE_CONFIG, Lowering
from compiler.targets import Target

Item = TypeVar("Item")
Result = TypeVar("Result")
OnDone = Callable[[int], None]


def compile_each(
    programs: tvm.IRModule,
    target: Target,
    observers: Sequence[Observer] = (),
    on_done: OnDone = lambda count: None,
) -> list[Any]:
    """One runtime module for each scheduled tensor program, in the order of their names."""
    lowering = Lowering(target, observers=observers)
    # Lowering one program while LLVM compiles another hides most of its time.
    return each(
        lambda program: generate_code(lowering.lower(program), target),
        apart(programs).values(),
        on_done,
    )


def generate_code(functions: tvm.IRModule, target: Target) -> Any:
    """A runtime module of lowered functions for a processor."""
    machine = tvm.target.Target(target.to_tvm())
    # A thread has a PassContext of its own.
    with tvm.transform.PassContext(opt_level=3, config=CODE_CONFIG):
        return tvm.get_global_func(f"target.build.{machine.kind.name}")(functions, machine)


def objects_of(
    programs: tvm.IRModule, on_done: OnDone, target: Target, observers: Sequence[Observer] = ()
) -> dict[str, bytes]:
    """The object of each scheduled tensor program, by its name."""
    modules = compile_each(programs, target, observers, on_done)
    return dict(zip(apart(programs), each(object_of, modules), strict=True))


def object_of(module: Any) -> bytes:
    """A runtime module of machine code, as an object."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "kernel.o")
        module.write_to_file(str(file), "o")
        return file.read_bytes()


def modules_of(objects: Mapping[str, bytes]) -> list[Any]:
    """Objects by name as TVM's modules, in the order of the names."""
    modules = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "kernel.o")
        for name in sorted(objects):
            file.write_bytes(objects[name])
            modules.append(tvm.runtime.load_static_library(str(file), [name]))
    return modules


def apart(programs: tvm.IRModule) -> dict[str, tvm.IRModule]:
    """Each program as a module, by its name, in the order of the names."""
    named = sorted(programs.functions.items(), key=lambda item: item[0].name_hint)
    return {
        gvar.name_hint: tvm.IRModule({gvar: program}, attrs=programs.attrs)
        for gvar, program in named
    }


def each(
    change: Callable[[Item], Result], items: Iterable[Item], on_done: OnDone = lambda count: None
) -> list[Result]:
    """The results of `change` for all items, in order; TVM lets go of Python's lock while it
    works. on_done: gets in this thread how many are there, all before them included.
    """
    results = []
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for result in pool.map(change, items):
            results.append(result)
            on_done(len(results))
    return results
