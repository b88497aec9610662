"""Finds the matmuls of attentions, and which of them gain from operands of bfloat16."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from compiler.passes.match.scores import scores_of, softmax_of
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.exprs import as_int, op_name

_DECODED = 2
"""Queries of a head that may be those of text that is decoded."""

WIDEST = 256
"""Elements of a head above which attention is not fused."""


@dataclass(frozen=True)
class AttentionMatmul:
    """A matmul of an attention: the variable of the attention's other matmul, and why both are
    better left as they are, None where they are not.
    """

    partner: Any
    objection: str | None


def find_attention_matmuls(module: tvm.IRModule, unit: VectorUnit) -> Mapping[Any, AttentionMatmul]:
    """Both matmuls of every softmax(q @ k, changed elementwise) @ v, by variable."""
    return {
        one: AttentionMatmul(other, why)
        for function in module.functions.values()
        if isinstance(function, relax.Function)
        for block in function.body.blocks
        for first, second, why in _of_block(module, block, unit)
        for one, other in ((first, second), (second, first))
    }


def _of_block(
    module: tvm.IRModule, block: Any, unit: VectorUnit
) -> Iterator[tuple[Any, Any, str | None]]:
    calls = {
        binding.var: binding.value
        for binding in block.bindings
        if isinstance(binding.value, relax.Call)
    }

    def bound(expr: Any) -> Any:
        return calls.get(expr) if isinstance(expr, relax.Var) else None

    for var, call in calls.items():
        if op_name(call) != "relax.matmul":
            continue
        if (read := softmax_of(module, bound, call.args[0])) is not None:
            softmax, _ = read
            scores = scores_of(bound, softmax.args[0], softmax.ty, [])
            if scores is not None:
                yield scores, var, _objection(unit, calls[scores], call)


def _objection(unit: VectorUnit, scores: Any, result: Any) -> str | None:
    if unit.bfloat16_dot is None:
        return "it is of an attention, and the processor has no fast instruction for pairs"
    if scores.ty.ndim < 3:
        return "it is of an attention without heads"
    for size in (scores.args[0].ty.shape.values[-1], result.ty.shape.values[-1]):
        known = as_int(size)
        if known is None or known % 8 or not 0 < known <= WIDEST:
            return "it is of an attention whose heads have other sizes than its kernel takes"
    *_, rows, columns = scores.ty.shape.values
    known = as_int(rows)
    # Beside as many keys, one or two queries are a short text.
    longer = known is not None and known > _DECODED
    if longer or tvm.sym.Analyzer().can_prove_equal(rows, columns):
        return None
    return "it is of an attention that may have one query, which reads keys from memory once"
