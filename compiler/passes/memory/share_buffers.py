"""Makes one tensor object of all tensors that the memory plan puts at one place with one shape, and
one shape object of equal shapes.

The virtual machine makes an object for every shape and every tensor of a plan, which takes as long
as the kernels of a small model. Repeated layers ask for equal ones again and again.
"""

from dataclasses import dataclass

import tvm
from tvm import relax
from tvm_ffi import StructuralKey

from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.framework.properties import Property

_ALLOCATE = "relax.memory.alloc_tensor"
_SHAPED = {_ALLOCATE: 2, "relax.reshape": 1}
"""By operator, the position of the argument that is a shape."""


@dataclass(frozen=True)
class ShareBuffers(ModulePass):
    """Makes equal `alloc_tensor` calls of a function once, and their shapes too; the branches of an
    If stay as they are.
    """

    name = "share_buffers"
    phase = Phase.MEMORY_PLAN
    requires = (Property.DESTINATIONS,)

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every Relax function of a module whose memory is planned."""
        functions = [
            (name, function)
            for name, function in module.functions.items()
            if isinstance(function, relax.Function)
        ]
        sharing = _Sharing(module)
        for name, function in functions:
            sharing.builder_.update_func(name, sharing.share(function))
        return sharing.builder_.get()


@relax.expr_functor.mutator
class _Sharing(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._forget()

    def _forget(self) -> None:
        self._depth = 0
        self._known: dict[StructuralKey, relax.Var] = {}

    def share(self, function: relax.Function) -> relax.Function:
        self._forget()
        return self.visit_expr(function)

    def visit_seq_expr_(self, op: relax.SeqExpr) -> relax.Expr:
        """Counts the sequences around a call: one in a branch of an If cannot share a tensor that
        was made in the other branch.
        """
        self._depth += 1
        try:
            return super().visit_seq_expr_(op)
        finally:
            self._depth -= 1

    def visit_call_(self, op: relax.Call) -> relax.Expr:
        """Replaces `alloc_tensor(storage, offset, shape, dtype, device)` by the variable that
        already holds an equal tensor.
        """
        call = super().visit_call_(op)
        if self._depth > 1 or not isinstance(call.op, tvm.ir.Op) or call.op.name not in _SHAPED:
            return call
        index = _SHAPED[call.op.name]
        if not isinstance(call.args[index], relax.ShapeExpr):
            return call
        # Equal shapes first: the key of a tensor holds the variable of its shape.
        shape = self._once([call.args[index]], call.args[index])
        arguments = [*call.args[:index], shape, *call.args[index + 1 :]]
        shaped = relax.Call(call.op, arguments, call.attrs, call.ty_args)
        return self._once(arguments, shaped) if call.op.name == _ALLOCATE else shaped

    def _once(self, identity: list[relax.Expr], value: relax.Expr) -> relax.Var:
        key = StructuralKey(identity)
        if key not in self._known:
            self._known[key] = self.builder_.emit(value)
        return self._known[key]
