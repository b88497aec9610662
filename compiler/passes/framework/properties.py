"""Properties of modules that passes require and ensure, each with a predicate that decides whether
a module has it.
"""

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, s_tir, tirx
from tvm.ir.prim import expr as prim
from tvm.tirx.stmt import ForKind
from tvm_ffi import VisitInterrupt, WalkResult

from compiler.passes.framework.attributes import FAMILY, FUNCTION, OBJECT
from compiler.tir.exprs import dtype_of, op_name

_LOWERED = frozenset(
    {
        "relax.call_tir",
        "relax.call_tir_inplace",
        "relax.call_dps_packed",
        "relax.call_pure_packed",
        "relax.tensor_to_shape",
        "relax.shape_to_tensor",
        "relax.reshape",
    }
)
"""The operators that TVM lowers to calls of the virtual machine, where a reshape becomes a view."""

_OF_RUN_TIME = ("relax.vm.", "relax.builtin.", "relax.memory.")
"""Prefixes of operators of modules whose memory is planned, and of views."""


class Property(StrEnum):
    """One statement about all functions of a module; the value is its name in `relaxd opt`."""

    TENSOR_PROGRAMS = "tensor_programs"
    OP_PATTERNS = "op_patterns"
    FUSED = "fused"
    SCHEDULED = "scheduled"
    NO_DATAFLOW = "no_dataflow"
    DESTINATIONS = "destinations"
    SYMBOLS = "symbols"
    TARGETS = "targets"
    NO_BLOCKS = "no_blocks"
    FLAT_BUFFERS = "flat_buffers"
    NO_BFLOAT16_ARITHMETIC = "no_bfloat16_arithmetic"
    NO_VECTOR_LOOPS = "no_vector_loops"
    NO_FLOOR_DIVISIONS = "no_floor_divisions"
    NO_PARALLEL_LOOPS = "no_parallel_loops"
    PACKED_FUNCTIONS = "packed_functions"
    C_FUNCTIONS = "c_functions"

    @property
    def meaning(self) -> str:
        """The property in a sentence."""
        return _MEANINGS[self]

    def holds(self, module: tvm.IRModule) -> bool:
        """Decides if the module has the property."""
        return _PREDICATES[self](module)


_MEANINGS = {
    Property.TENSOR_PROGRAMS: "every operator is a call of a tensor program or of the runtime",
    Property.OP_PATTERNS: "every tensor program is marked with how FuseOps may fuse it",
    Property.FUSED: "every group of fused operators is one tensor program",
    Property.SCHEDULED: "every tensor program has a note of the family that wrote its loops",
    Property.NO_DATAFLOW: "no Relax function has dataflow blocks",
    Property.DESTINATIONS: "tensor programs are called with the tensors that they write",
    Property.SYMBOLS: "every tensor program has a symbol",
    Property.TARGETS: "every tensor program has its target",
    Property.NO_BLOCKS: "loops hold statements, no blocks",
    Property.FLAT_BUFFERS: "every buffer is accessed by one index",
    Property.NO_BFLOAT16_ARITHMETIC: "bfloat16 is stored, not computed in",
    Property.NO_VECTOR_LOOPS: "no loop is to become vectors: statements are vectors already",
    Property.NO_FLOOR_DIVISIONS: "integer divisions round to zero",
    Property.NO_PARALLEL_LOOPS: "no loop runs over threads",
    Property.PACKED_FUNCTIONS: "every function has the interface of TVM's calls",
    Property.C_FUNCTIONS: "every function is one of pointers and numbers",
}


def _programs(module: tvm.IRModule) -> Iterator[tirx.PrimFunc]:
    return (func for func in module.functions.values() if isinstance(func, tirx.PrimFunc))


def _graphs(module: tvm.IRModule) -> Iterator[relax.Function]:
    return (func for func in module.functions.values() if isinstance(func, relax.Function))


def survivors(func: relax.Function) -> list[str]:
    """The names of the operators that are no calls of tensor programs or of the runtime, once
    each.
    """
    names: dict[str, None] = {}

    def visit(node: Any) -> None:
        name = op_name(node) if isinstance(node, tvm.ir.Call) else ""
        lowered = name in _LOWERED or name.startswith(_OF_RUN_TIME)
        if name.startswith("relax.") and not lowered:
            names[name] = None

    relax.analysis.post_order_visit(func, visit)
    return list(names)


def _calls_no(operator: str) -> Callable[[tvm.IRModule], bool]:
    def holds(module: tvm.IRModule) -> bool:
        calls: list[Any] = []

        def visit(node: Any) -> None:
            if isinstance(node, tvm.ir.Call) and op_name(node) == operator:
                calls.append(node)

        for func in _graphs(module):
            relax.analysis.post_order_visit(func, visit)
        return not calls

    return holds


def _has_no_dataflow(module: tvm.IRModule) -> bool:
    blocks: list[Any] = []

    def visit(node: Any) -> None:
        if isinstance(node, relax.SeqExpr):
            blocks.extend(block for block in node.blocks if isinstance(block, relax.DataflowBlock))

    for func in _graphs(module):
        relax.analysis.post_order_visit(func, visit)
    return not blocks


def _every_program_has(*attributes: str) -> Callable[[tvm.IRModule], bool]:
    """Each tensor program has one of the attributes."""
    return lambda module: all(
        any(name in (func.attrs or {}) for name in attributes) for func in _programs(module)
    )


def _no_node(
    kinds: Any, is_one: Callable[[Any], bool] = lambda node: True
) -> Callable[[tvm.IRModule], bool]:
    """No statement of a tensor program has a node of these kinds for which `is_one` holds."""

    def stop(node: Any) -> VisitInterrupt | None:
        return VisitInterrupt(node) if is_one(node) else None

    # The types of buffers keep their extents: they are not computed.
    steps = ((tvm.ir.Var, lambda _: WalkResult.SKIP), (kinds, stop))
    return lambda module: all(
        tvm_ffi.structural_walk(func.body, steps, order="pre") is None for func in _programs(module)
    )


def _is_bfloat16(node: Any) -> bool:
    return dtype_of(node).startswith("bfloat16")


_ARITHMETIC = (prim.Add, prim.Sub, prim.Mul, prim.Div, prim.Min, prim.Max, prim.Cast)
_PREDICATES: dict[Property, Callable[[tvm.IRModule], bool]] = {
    Property.TENSOR_PROGRAMS: lambda module: not any(map(survivors, _graphs(module))),
    Property.OP_PATTERNS: _every_program_has("op_pattern"),
    Property.FUSED: lambda module: (
        not any("Primitive" in (func.attrs or {}) for func in _graphs(module))
    ),
    Property.SCHEDULED: _every_program_has(FAMILY, OBJECT),
    Property.NO_DATAFLOW: _has_no_dataflow,
    Property.DESTINATIONS: _calls_no("relax.call_tir"),
    Property.SYMBOLS: _every_program_has("global_symbol"),
    Property.TARGETS: _every_program_has("target"),
    Property.NO_BLOCKS: _no_node(s_tir.SBlockRealize),
    Property.FLAT_BUFFERS: lambda module: (
        _no_node(tvm.ir.TensorLoad, lambda node: len(node.indices) != 1)(module)
        and _no_node(tirx.BufferStore, lambda node: len(node.indices) != 1)(module)
    ),
    Property.NO_BFLOAT16_ARITHMETIC: _no_node(_ARITHMETIC, _is_bfloat16),
    Property.NO_VECTOR_LOOPS: _no_node(tirx.For, lambda loop: loop.kind == ForKind.VECTORIZED),
    Property.NO_FLOOR_DIVISIONS: _no_node((tirx.FloorDiv, tirx.FloorMod)),
    Property.NO_PARALLEL_LOOPS: _no_node(tirx.For, lambda loop: loop.kind == ForKind.PARALLEL),
    Property.PACKED_FUNCTIONS: _every_program_has("calling_conv"),
    Property.C_FUNCTIONS: _every_program_has(FUNCTION),
}
