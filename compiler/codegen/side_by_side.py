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

Given = TypeVar("Given")
Made = TypeVar("Made")


def compile_each(module: tvm.IRModule, target: tvm.target.Target) -> list[Any]:
    """One runtime module for each function of a module that was lowered for LLVM, in the order of
    the functions' names.
    """
    build = tvm.get_global_func(f"target.build.{target.kind.name}")
    named = sorted(module.functions.items(), key=lambda item: item[0].name_hint)
    alone = [tvm.IRModule({gvar: function}, attrs=module.attrs) for gvar, function in named]
    return each(lambda program: build(program, target), alone)


def each(make: Callable[[Given], Made], items: Iterable[Given]) -> list[Made]:
    """What `make` gives for each item, in order; TVM lets go of Python's lock while LLVM works."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(make, items))
