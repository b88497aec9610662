"""Reads rows of a table where a model multiplies one-hot rows by it, as JAX writes embeddings: of
each row's products all but one are zero.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx

from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.match.op_patterns import INJECTIVE, MARK
from compiler.passes.match.rewriting import CallRewriter, rewrite_functions
from compiler.tir.exprs import as_int, op_name


@dataclass(frozen=True)
class OneHotRows(ModulePass):
    """Replaces astype(equal(index, arange(V))) @ table by rows of the table, zeros where an index
    is none of these. Tables with an infinity or NaN stay: zero times these is not zero.
    """

    name = "one_hot_rows"
    phase = Phase.GRAPH

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every Relax function, and drops dead bindings."""
        return relax.transform.DeadCodeElimination()(rewrite_functions(_Rewriter(module)))


@relax.expr_functor.mutator
class _Rewriter(CallRewriter):
    def rewrite(self, call: Any) -> Any:
        index = self._index(call) if op_name(call) == "relax.matmul" else None
        if index is None:
            return call
        return self.builder_.call_te(
            _rows,
            index,
            self.constant_of(call.args[1]),
            primfunc_name_hint="one_hot_rows",
            primfunc_attrs={MARK: INJECTIVE},
        )

    def _index(self, matmul: Any) -> Any:
        """The indices [.., 1] of which a matmul's left side is one-hot; None of any other."""
        table = self.constant_of(matmul.args[1])
        if table is None or table.ty.ndim != 2 or str(matmul.ty.dtype) != "float32":
            return None
        if str(table.ty.dtype) != "float32" or not np.isfinite(table.value.numpy()).all():
            return None
        hot = self._bound(self._bound(matmul.args[0], "relax.astype"), "relax.equal", of=0)
        if hot is None:
            return None
        for index, counts in (hot.args, reversed(hot.args)):
            if self._counts(counts, int(table.ty.shape.values[0])) and _is_column(index, hot):
                return index
        return None

    def _bound(self, expr: Any, name: str, of: int | None = None) -> Any:
        """The call of that operator that `expr`, or its argument `of`, is; else None."""
        if expr is None:
            return None
        expr = expr if of is None else expr.args[of]
        bound = self.value_of(expr)
        return bound if op_name(bound) == name else None

    def _counts(self, expr: Any, count: int) -> bool:
        """True if `expr` is the constant 0, 1 .. count - 1 along its last axis."""
        constant = self.constant_of(expr)
        if constant is None:
            return False
        values = constant.value.numpy()
        along = values.ndim > 0 and values.shape[-1] == values.size == count
        return bool(along and np.array_equal(values.ravel(), np.arange(count)))


def _is_column(index: Any, hot: Any) -> bool:
    """True if integers [.., 1] are compared with what has one row alone."""
    shape = index.ty.shape
    return (
        str(index.ty.dtype).startswith(("int", "uint"))
        and isinstance(shape, relax.ShapeExpr)
        and len(shape.values) == hot.ty.ndim
        and as_int(shape.values[-1]) == 1
    )


def _rows(index: te.Tensor, table: te.Tensor) -> te.Tensor:
    last = table.shape[0] - 1

    def value(*position: tirx.Var) -> Any:
        *row, column = position
        number = index(*row, 0).astype("int64")
        nearest = tirx.max(tirx.min(number, last), tirx.const(0, "int64"))
        return tirx.Select(number == nearest, table(nearest, column), tirx.const(0, "float32"))

    return te.compute((*index.shape[:-1], table.shape[1]), value, name="one_hot_rows")
