"""Functions and sums of products as LLVM's, one expression at a time."""

from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm_ffi import WalkResult

from compiler.passes.framework.base import Phase
from compiler.passes.framework.programs import ProgramPass
from compiler.passes.framework.properties import Property
from compiler.tir.exprs import LEAVES, Expr
from compiler.tir.loops import with_body

_TARGET = "target"


@dataclass(frozen=True)
class LowerIntrinsics(ProgramPass):
    """Runs TVM's LowerIntrin on the expressions of each function, without the loops, branches and
    variables around them.

    LowerIntrin tells an analyzer each loop, branch and variable, and asks the analyzer for nothing
    but the signs of what is divided, which `TruncateDivisions` has settled.
    """

    name = "lower_intrinsics"
    phase = Phase.FUNCTIONS
    requires = (Property.TARGETS,)

    def rewrite(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """Rewrites the expressions of a function."""
        # By address; the expression is kept, so that its address is not used again.
        originals: dict[int, Expr] = {}

        def expression(node: Any) -> Any:
            if not isinstance(node, LEAVES):
                originals[node.__chandle__()] = node
            return WalkResult.SKIP

        tvm_ffi.structural_walk(func.body, (tvm.ir.Expr, expression), order="pre")
        if not originals:
            return func
        # Arguments of a call: of statements in a row, TVM leaves out those that it finds constant.
        call = tirx.call_extern("int32", "of", *originals.values())
        alone = tirx.PrimFunc([], tirx.Evaluate(call)).with_attr(_TARGET, func.attrs[_TARGET])
        (done,) = tirx.transform.LowerIntrin()(tvm.IRModule({"alone": alone})).functions.values()
        _name, *lowered = done.body.value.args
        changed = dict(zip(originals, lowered, strict=True))

        def replaced(node: Any, _mutator: Any) -> Any:
            return changed.get(node.__chandle__(), node)

        return with_body(func, tvm_ffi.structural_mutate(func.body, [(tvm.ir.Expr, replaced)]))
