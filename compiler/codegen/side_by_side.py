"""Machine code of tensor programs, each a module of LLVM's of its own, made on all processors at
once.

What a program's code is depends on that program alone: neither on the other ones, nor on how many
processors there were.
"""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
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

    named = sorted(programs.functions.items(), key=lambda item: item[0].name_hint)
    return each(
        compiled, [tvm.IRModule({gvar: program}, attrs=programs.attrs) for gvar, program in named]
    )


def each(make: Callable[[Given], Made], items: Iterable[Given]) -> list[Made]:
    """What `make` gives for each item, in order; TVM lets go of Python's lock while it works."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(make, items))
