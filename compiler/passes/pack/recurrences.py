"""Recurrent layers in integers by the processor's instruction for dot products of bytes: the
importers, which know no processor, write their programs with plain multiplications.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm
from tvm import relax

from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.match.rewriting import CallRewriter, rewrite_functions
from compiler.recurrences.description import ATTRIBUTE, parse
from compiler.recurrences.layer import LANES, Integers, Recurrence, buffers_of
from compiler.recurrences.recurrent import emit_recurrence
from compiler.targets.vector_unit import IntegerDot, VectorUnit
from compiler.tir.exprs import op_name, require_int

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class PackRecurrences(ModulePass):
    """Writes the programs of recurrent layers by constant int8 weights anew, with the instruction,
    and packs their weights for it.
    """

    unit: VectorUnit
    name = "pack_recurrences"
    phase = Phase.PACK

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every Relax function if the processor has such an instruction."""
        dots = [dot for dot in self.unit.integer_dots if dot.intrinsic and not dot.scalar]
        if not dots:
            return module
        rewritten = rewrite_functions(_Rewriter(module, dots[0], self.unit))
        return relax.transform.DeadCodeElimination()(rewritten)


@relax.expr_functor.mutator
class _Rewriter(CallRewriter):
    def __init__(self, module: tvm.IRModule, dot: IntegerDot, unit: VectorUnit) -> None:
        super().__init__(module)
        self.dot, self.unit = dot, unit

    def rewrite(self, call: Any) -> Any:
        if op_name(call) != "relax.call_tir":
            return call
        program = self.module.functions[call.args[0]]
        if ATTRIBUTE not in (program.attrs or {}):
            return call
        plain = parse(str(program.attrs[ATTRIBUTE]))
        layers = [replace(one, integers=self._with_instruction(_integers(one))) for one in plain]
        arguments = self._arguments(plain, layers, iter(call.args[1].fields))
        if arguments is None:
            return call
        new = self.builder_.add_func(emit_recurrence(*layers), call.args[0].name_hint)
        return relax.call_tir(new, arguments, _result_types(call))

    def _with_instruction(self, integers: Integers) -> Integers:
        lanes = self.unit.lanes(32)
        integers = replace(integers, dot=self.dot, lanes=lanes)
        # A quarter of the registers are for weights and elements of the state.
        registers = self.unit.registers * 3 // 4 // (LANES * integers.panel // lanes)
        return replace(integers, accumulators=registers)

    def _arguments(
        self, plain: Sequence[Recurrence], layers: Sequence[Recurrence], operands: Iterator[Any]
    ) -> list[Any] | None:
        """The arguments with packed weights and the totals of their columns; None where weights are
        computed.
        """
        result: list[Any] = []
        for before, layer in zip(plain, layers, strict=True):
            own = [next(operands) for _ in buffers_of(before).inputs]
            constant = self.constant_of(own[1])
            if constant is None:
                return None
            weights, integers = constant.value.numpy(), _integers(layer)
            own[1] = relax.const(pack_blocks(weights, integers))
            if integers.takes_bytes:
                totals = weights.astype(np.int32).sum(2).reshape(-1)
                own.insert(3, relax.const(totals))
            result += own
        return result


def _result_types(call: Any) -> list[Any]:
    (ty,) = call.ty_args
    return list(ty.fields) if isinstance(ty, relax.TupleType) else [ty]


def _integers(layer: Recurrence) -> Integers:
    assert layer.integers is not None
    return layer.integers


def pack_blocks(weights: Array, integers: Integers) -> Array:
    """Packs [K, G, H, LANES] as [K / P, H / g, G, P * LANES, g], flat, P blocks a panel and g units
    a group, with zeros past the ends: a step reads a panel from the first byte to the last.
    """
    blocks, gates, hidden, _ = weights.shape
    groups = require_int(integers.groups(hidden))
    panel, group = integers.panel, integers.group
    padded = np.zeros((-(-blocks // panel) * panel, gates, groups * group, LANES), np.int8)
    padded[:blocks, :, :hidden] = weights
    parted = padded.reshape(-1, panel, gates, groups, group, LANES).transpose(0, 3, 2, 1, 5, 4)
    return np.ascontiguousarray(parted).reshape(-1)
