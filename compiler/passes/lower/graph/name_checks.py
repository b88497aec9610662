"""Puts the messages of the importers' run-time checks into the errors of the virtual machine."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.ir import StringImm
from tvm.relax.expr_functor import PyExprMutator, mutator

from compiler.ir.graph.checks import messages_of
from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.framework.properties import Property

_CONTEXT = re.compile(r"ErrorContext\(match_cast, ty=R\.Shape\(\[(?:.*, )?(\d+)\]\)\)")


@dataclass(frozen=True)
class NameChecks(ModulePass):
    """Replaces the number of each check in a module lowered to calls of the virtual machine by
    `{{message}}`.
    """

    name = "name_checks"
    phase = Phase.VIRTUAL_MACHINE
    requires = (Property.SYMBOLS,)

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Changes the module in place."""
        messages = messages_of(module)
        if not messages:
            return module
        for gvar, function in list(module.functions.items()):
            if isinstance(function, relax.Function):
                module[gvar] = _Namer(messages).visit_expr(function)
        return module


@mutator
class _Namer(PyExprMutator):  # type: ignore[misc]
    """Replaces the contexts of checks."""

    def __init__(self, messages: Mapping[str, str]) -> None:
        super().__init__()
        self._messages = messages

    def visit_string_imm_(self, op: StringImm) -> relax.Expr:
        """A string, which may be the context of a check."""
        context = _CONTEXT.search(op.value)
        message = self._messages.get(context[1]) if context else None
        return op if message is None else StringImm(f"{{{{{message}}}}} ")
