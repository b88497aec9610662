"""Puts the messages of what every run checks into the errors that the virtual machine raises."""

import re
from collections.abc import Mapping

import tvm
from tvm import relax
from tvm.ir import StringImm
from tvm.relax.expr_functor import PyExprMutator, mutator

from compiler.ir.checks import messages_of

_CONTEXT = re.compile(r"ErrorContext\(match_cast, ty=R\.Shape\(\[(\d+)\]\)\)")


def name_checks(module: tvm.IRModule) -> tvm.IRModule:
    """The module, lowered to calls of the virtual machine, whose failing checks say `{{message}}`
    instead of a number.
    """
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
        found = _CONTEXT.search(op.value)
        message = self._messages.get(found[1]) if found else None
        return op if message is None else StringImm(f"{{{{{message}}}}} ")
