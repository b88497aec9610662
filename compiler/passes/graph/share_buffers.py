"""One tensor, and one shape, for all that the memory plan puts in the same place with the same
extents.

The virtual machine makes an object of every shape and every tensor of a plan, which in a small
model takes as long as its kernels. Layers that repeat ask for the same ones again and again.
"""

import tvm
from tvm import relax
from tvm_ffi import StructuralKey

_ALLOCATE = "relax.memory.alloc_tensor"
_SHAPED = {_ALLOCATE: 2, "relax.reshape": 1}
"""Which argument of an operator is a shape."""


def share_buffers(module: tvm.IRModule) -> tvm.IRModule:
    """The module with equal `alloc_tensor` calls of a function made once, as are the shapes they
    take; If branches stay as they are.
    """
    functions = [
        (name, function)
        for name, function in module.functions.items()
        if isinstance(function, relax.Function)
    ]
    sharing = _Sharing(module)
    for name, function in functions:
        sharing.builder_.update_func(name, sharing.shared(function))
    return sharing.builder_.get()


@relax.expr_functor.mutator
class _Sharing(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._forget()

    def _forget(self) -> None:
        self._depth = 0
        self._known: dict[StructuralKey, relax.Var] = {}

    def shared(self, function: relax.Function) -> relax.Function:
        self._forget()
        return self.visit_expr(function)

    def visit_seq_expr_(self, op: relax.SeqExpr) -> relax.Expr:
        """Branches are sequences within the function's own: what is made in one is not there in the
        other.
        """
        self._depth += 1
        try:
            return super().visit_seq_expr_(op)
        finally:
            self._depth -= 1

    def visit_call_(self, op: relax.Call) -> relax.Expr:
        """`alloc_tensor(storage, offset, shape, dtype, device)`, or the variable that already holds
        it.
        """
        call = super().visit_call_(op)
        if self._depth > 1 or not isinstance(call.op, tvm.ir.Op) or call.op.name not in _SHAPED:
            return call
        index = _SHAPED[call.op.name]
        if not isinstance(call.args[index], relax.ShapeExpr):
            return call
        shape = self._once([call.args[index]], call.args[index])
        arguments = [*call.args[:index], shape, *call.args[index + 1 :]]
        shaped = relax.Call(call.op, arguments, call.attrs, call.ty_args)
        return self._once(arguments, shaped) if call.op.name == _ALLOCATE else shaped

    def _once(self, identity: list[relax.Expr], value: relax.Expr) -> relax.Var:
        key = StructuralKey(identity)
        if key not in self._known:
            self._known[key] = self.builder_.emit(value)
        return self._known[key]
