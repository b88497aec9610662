"""Checks that every tensor program of a GPU build touches memory from inside a grid of threads."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from compiler.errors import PassError
from compiler.passes.framework.base import ModulePass, Phase


@dataclass(frozen=True)
class CheckBound(ModulePass):
    """Refuses modules with a PrimFunc that stores, or calls the host, outside blockIdx and
    threadIdx.
    """

    name = "check_bound"
    phase = Phase.LOOPS

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Returns the module unchanged; raises PassError naming each such PrimFunc."""
        unbound = [
            gvar.name_hint
            for gvar, func in module.functions.items()
            if is_kernel(func) and not is_bound(func)
        ]
        if unbound:
            raise PassError(
                f"no grid of threads runs {', '.join(sorted(unbound))}",
                reason="unbound_kernel",
                pass_name=self.name,
                hint="build for a CPU target, or leave the operator out of the model",
                kernels=sorted(unbound),
            )
        return module


def is_kernel(func: tvm.ir.BaseFunc) -> bool:
    """True if a function is a tensor program for the device: a PrimFunc without the mark of host
    functions.
    """
    return isinstance(func, tirx.PrimFunc) and not (
        func.attrs and "tirx.is_host_func" in func.attrs
    )


def is_bound(func: tirx.PrimFunc) -> bool:
    """True if every store and every call with effects of `func` runs under both a block and a
    thread index.
    """
    return all(
        "blockIdx" in tags and "threadIdx" in tags for tags in _effects(func.body, frozenset())
    )


def _effects(stmt: Any, tags: frozenset[str]) -> Iterator[frozenset[str]]:
    """For each store and each call in `stmt`, the kinds of thread index bound around it."""
    match stmt:
        case tirx.BufferStore():
            yield tags
        case tirx.Evaluate():
            if isinstance(stmt.value, tvm.ir.Call):
                yield tags
        case tirx.For():
            binding = stmt.thread_binding
            yield from _effects(
                stmt.body, tags if binding is None else tags | _kind(binding.thread_tag)
            )
        case tirx.AttrStmt():
            launches = stmt.attr_key == "thread_extent"
            yield from _effects(stmt.body, tags | _kind(stmt.node.thread_tag) if launches else tags)
        case s_tir.SBlockRealize():
            for part in (stmt.block.init, stmt.block.body):
                yield from _effects(part, tags)
        case tirx.SeqStmt():
            yield from _effects_of(list(stmt.seq), tags)
        case tirx.IfThenElse():
            for part in (stmt.then_case, stmt.else_case):
                yield from _effects(part, tags)
        case tirx.While():
            yield from _effects(stmt.body, tags)
        # A store inside a statement of another kind counts as outside: refusing is safe.
        case _ if stmt is not None and _stores(stmt):
            yield frozenset()


def _effects_of(stmts: list[Any], tags: frozenset[str]) -> Iterator[frozenset[str]]:
    for stmt in stmts:
        yield from _effects(stmt, tags)


def _kind(tag: str) -> frozenset[str]:
    return frozenset({tag.partition(".")[0]})


def _stores(stmt: Any) -> bool:
    stores: list[Any] = []
    tvm_ffi.structural_walk(stmt, (tirx.BufferStore, stores.append))
    return bool(stores)
