"""Cuts chains of elementwise operators where a kernel's expression would grow without end.

A kernel computes what is fused into it as one expression, in which an operator that reads its
operand twice holds it twice, and TVM simplifies an expression as a tree: for `x = tanh(x + c)` in
an unrolled loop of 24 iterations code generation never ended.
"""

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import ir, relax, tirx

from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.framework.properties import Property
from compiler.passes.fusion.apart import marked_apart
from compiler.passes.match.op_patterns import INJECTIVE, MARK, OPAQUE
from compiler.tir.exprs import Expr, children, op_name
from compiler.tir.stages import read_program

MOST_NODES = 1000
"""Counted as here, a GELU holds its operand 31 times and a Mish some 900 times."""
_WRITTEN_OUT = frozenset(("tirx.exp", "tirx.erf", "tirx.tanh", "tirx.sigmoid"))
_AGAIN = 30
"""About how often a function that is written out as a polynomial holds its argument: TVM's
simplifier puts values in the place of the variables that they are bound to.
"""


@dataclass(frozen=True)
class BreakChains(ModulePass):
    """Marks as opaque, so that FuseOps starts a kernel behind it, each elementwise program whose
    expression would be too large.
    """

    name = "break_chains"
    phase = Phase.TENSOR_PROGRAMS
    requires = (Property.OP_PATTERNS,)

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Gives such calls a copy of their PrimFunc; returns the same module if there are none."""
        growths, apart = _Growths(module), set[Any]()
        for func in module.functions.values():
            if isinstance(func, relax.Function):
                apart |= growths.too_large(func)
        return marked_apart(module, apart, OPAQUE)


class _Growths:
    """How large the expressions of a module's programs get."""

    def __init__(self, module: tvm.IRModule) -> None:
        self._module = module
        self._growths = dict[Any, tuple[int, ...] | None]()

    def too_large(self, func: relax.Function) -> set[Any]:
        """The variables of `func` whose programs are to stay apart."""
        sizes: dict[Any, int] = {}
        apart = set()
        for block in func.body.blocks:
            for binding in block.bindings:
                size = self._size(binding.value, sizes)
                if size > MOST_NODES:
                    apart.add(binding.var)
                    size = 1
                sizes[binding.var] = size
        return apart

    def _size(self, value: Any, sizes: dict[Any, int]) -> int:
        if op_name(value) != "relax.call_tir":
            return 1
        growth = self._growth(value.args[0])
        if growth is None:
            return 1
        return 1 + sum(
            own * sizes.get(arg, 1) for own, arg in zip(growth, value.args[1].fields, strict=False)
        )

    def _growth(self, gvar: Any) -> tuple[int, ...] | None:
        """How often the expression of a fusable program holds each of its operands."""
        if gvar not in self._growths:
            self._growths[gvar] = _growth(self._module[gvar])
        return self._growths[gvar]


def _growth(func: tvm.ir.BaseFunc) -> tuple[int, ...] | None:
    if not isinstance(func, tirx.PrimFunc) or int((func.attrs or {}).get(MARK, OPAQUE)) > INJECTIVE:
        return None
    program = read_program(func)
    if program is None or len(program.stages) != 1:
        return None
    value = program.stages[0].value
    return tuple(_occurrences(value, buffer) for buffer in program.params)


def _occurrences(value: Expr, buffer: Any) -> int:
    if isinstance(value, ir.TensorLoad):
        return int(value.source.same_as(buffer))
    inside = sum(_occurrences(part, buffer) for part in children(value))
    return inside * (_AGAIN if op_name(value) in _WRITTEN_OUT else 1)
