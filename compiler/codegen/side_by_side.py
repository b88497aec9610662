"""Machine code of tensor programs, each a module of LLVM's of its own, made on all processors at
once.

What a program's code is depends on that program alone: neither on the other ones, nor on how many
processors there were.
"""

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import tvm

from compiler.codegen import host_code

Given = TypeVar("Given")
Made = TypeVar("Made")


def compile_each(programs: tvm.IRModule, target: tvm.target.Target) -> list[Any]:
    """One runtime module for each scheduled tensor program, in the order of their names."""
    host_code.mark_vector_calls()
    build = tvm.get_global_func(f"target.build.{target.kind.name}")

    def compiled(program: tvm.IRModule) -> Any:
        # A thread has a PassContext of its own. Lowering one program while LLVM compiles another
        # hides most of its time.
        with tvm.transform.PassContext(opt_level=3, config=host_code.CONFIG):
            return build(host_code.lowered(program, target), target)

    return each(compiled, apart(programs).values())


def objects_of(programs: tvm.IRModule, target: tvm.target.Target) -> dict[str, bytes]:
    """The object of each scheduled tensor program, by its name."""
    made = compile_each(programs, target)
    return dict(zip(apart(programs), each(object_of, made), strict=True))


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


def each(make: Callable[[Given], Made], items: Iterable[Given]) -> list[Made]:
    """What `make` gives for each item, in order; TVM lets go of Python's lock while it works."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(make, items))
