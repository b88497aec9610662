"""Multiplies rows by a weight before they are gathered, where more rows are gathered than there
are: of a graph with more edges than nodes, both ends of every edge.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx

from compiler.ir.arrays import as_constant, values_of
from compiler.ir.imported import Ranges
from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.match.op_patterns import INJECTIVE, MARK
from compiler.passes.match.positions import extents
from compiler.passes.match.rewriting import CallRewriter, is_weight, rewrite_functions
from compiler.tir.exprs import Expr, as_int, loads, nodes, op_name, rewrite, substitute
from compiler.tir.stages import read_program

TIMES = 2
"""How many rows are gathered for each there is, at their greatest extents, where the products of
all rows take less time than those of the gathered ones.
"""

_COLUMNS = 64
"""Rows of so many columns take longer to multiply than their products to read back, however many
columns the weight has.
"""


@dataclass(frozen=True)
class GatherProducts(ModulePass):
    """Replaces concat(x[i], x[j], y) @ w by (x @ u)[i] + (x @ v)[j] + y @ z, where u, v and z are
    the rows of w in order, and the declared ranges allow TIMES as many indices in i as rows in x.

    Sums are in another order than the model's. Where fewer rows are gathered than there are, the
    products of all rows are computed nevertheless. Constant tables stay as they are.
    """

    ranges: Ranges
    name = "gather_products"
    phase = Phase.GRAPH

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every Relax function, and drops dead bindings."""
        rewritten = rewrite_functions(_Rewriter(module, self.ranges))
        return relax.transform.DeadCodeElimination()(rewritten)


@dataclass(frozen=True)
class _Gather:
    """Whole rows of `table` [n, c] at `index`, a tensor of integers.

    row: the row that is read, in terms of what `index` holds, `element`, and of `count`, n.
    """

    table: Any
    index: Any
    row: Expr
    element: Any
    count: Any

    def row_at(self, element: Expr, count: Expr) -> Expr:
        """The row for an element of an index, of a table of that many rows."""
        return substitute(self.row, {self.element: element, self.count: count})


@dataclass(frozen=True)
class _Parts:
    """The left side of a matmul, cut along its columns, each part with the rows of the weight that
    it is multiplied by; all but gathered parts are taken as they are.
    """

    gathered: list[tuple[_Gather, np.ndarray]]
    others: list[tuple[Any, np.ndarray]]


@relax.expr_functor.mutator
class _Rewriter(CallRewriter):
    def __init__(self, module: tvm.IRModule, ranges: Ranges) -> None:
        super().__init__(module)
        self.greatest = {
            var: tirx.const(dim.highest, "int64")
            for var, dim in ranges.items()
            if dim.highest is not None
        }
        self.analyzer = tvm.sym.Analyzer()

    def rewrite(self, call: Any) -> Any:
        parts = self._parts(call) if op_name(call) == "relax.matmul" else None
        if parts is None or not parts.gathered:
            return call
        total = self._sum(parts.gathered)
        if not parts.others:
            return total
        others = self._matmul(parts.others)
        return relax.op.add(self.builder_.emit(others), self.builder_.emit(total))

    def _parts(self, matmul: Any) -> _Parts | None:
        """The parts of a matmul by a constant weight; None of any other."""
        weight = self.constant_of(matmul.args[1])
        if not is_weight(weight) or str(matmul.ty.dtype) != "float32":
            return None
        matrix = values_of(weight)
        parts, start = _Parts([], []), 0
        for value in self._join(matmul.args[0]):
            width = _columns(value)
            if width is None:
                return None
            rows = matrix[start : start + width]
            start += width
            gather = self._gather(value)
            if gather is not None and self._is_profitable(gather, width, matrix.shape[1]):
                parts.gathered.append((gather, rows))
            else:
                parts.others.append((value, rows))
        return parts

    def _join(self, value: Any) -> list[Any]:
        """The tensors that `value` has side by side along its last axis."""
        bound = self._bound(value)
        if op_name(bound) != "relax.concat" or not isinstance(bound.args[0], relax.Tuple):
            return [value]
        last = int(bound.attrs.axis) % bound.ty.ndim == bound.ty.ndim - 1
        return list(bound.args[0].fields) if last else [value]

    def _gather(self, value: Any) -> _Gather | None:
        """How `value` is gathered from a table that is computed or given."""
        call = self._bound(value)
        if op_name(call) != "relax.call_tir" or str(value.ty.dtype) != "float32":
            return None
        operands = list(call.args[1].fields)
        gather = _read_rows(self.module[call.args[0]], operands) if len(operands) == 2 else None
        if gather is None or self.constant_of(gather.table) is not None:
            return None
        return gather if _columns(gather.table) == _columns(value) else None

    def _is_profitable(self, gather: _Gather, width: int, outputs: int) -> bool:
        indices = self._most(extents(gather.index))
        rows = self._most((extents(gather.table) or [])[:1])
        many = indices is not None and rows is not None and indices >= TIMES * rows
        return many and width >= min(outputs, _COLUMNS)

    def _most(self, shape: Sequence[Expr] | None) -> int | None:
        """The greatest product of the extents; None of no extents, or of one without a bound."""
        if not shape:
            return None
        most = 1
        for extent in shape:
            bound = as_int(self.analyzer.simplify(substitute(extent, self.greatest)))
            if bound is None:
                return None
            most *= bound
        return most

    def _sum(self, parts: Sequence[tuple[_Gather, np.ndarray]]) -> Any:
        """The gathered products of all parts, added up. Parts of one table share a matmul."""
        tables: list[Any] = []
        weights: list[list[np.ndarray]] = []
        starts: list[tuple[int, int]] = []
        for gather, weight in parts:
            table_index = next(
                (k for k, one in enumerate(tables) if one.same_as(gather.table)), len(tables)
            )
            if table_index == len(tables):
                tables.append(gather.table)
                weights.append([])
            starts.append((table_index, sum(one.shape[1] for one in weights[table_index])))
            weights[table_index].append(weight)
        matmuls = [
            self.builder_.emit(relax.op.matmul(table, as_constant(np.concatenate(own, axis=1))))
            for table, own in zip(tables, weights, strict=True)
        ]
        columns = parts[0][1].shape[1]

        def added(*tensors: te.Tensor) -> te.Tensor:
            rows, indices = tensors[: len(matmuls)], tensors[len(matmuls) :]

            def value(*position: tirx.Var) -> Any:
                *outer, column = position
                total = None
                for (gather, _), index, (table_index, start) in zip(
                    parts, indices, starts, strict=True
                ):
                    row = gather.row_at(index(*outer), rows[table_index].shape[0])
                    one = rows[table_index](row, column + start)
                    total = one if total is None else total + one
                return total

            return te.compute((*indices[0].shape, columns), value, name="gather_products")

        return self.builder_.call_te(
            added,
            *matmuls,
            *(gather.index for gather, _ in parts),
            primfunc_name_hint="gather_products",
            primfunc_attrs={MARK: INJECTIVE},
        )

    def _matmul(self, parts: Sequence[tuple[Any, np.ndarray]]) -> Any:
        """The product of the parts that are not gathered."""
        values = [value for value, _ in parts]
        left = values[0]
        if len(values) > 1:
            left = self.builder_.emit(relax.op.concat(values, left.ty.ndim - 1))
        return relax.op.matmul(left, as_constant(np.concatenate([weight for _, weight in parts])))

    def _bound(self, value: Any) -> Any:
        bound: Any = self.value_of(value)
        return self._bound(bound) if isinstance(bound, relax.Var) else bound


def _columns(value: Any) -> int | None:
    """The extent of the last axis, where it is a number."""
    shape = extents(value)
    return as_int(shape[-1]) if shape else None


def _read_rows(func: Any, operands: Sequence[Any]) -> _Gather | None:
    """The gather that a tensor program of a table and an index is; None for any other program."""
    program = read_program(func) if isinstance(func, tirx.PrimFunc) else None
    if program is None or len(program.params) != 3 or len(program.stages) != 1:
        return None
    (stage,), (table, index, _) = program.stages, program.params
    value, axes = stage.value, [axis.var for axis in stage.axes]
    if stage.init is not None or not _equal(stage.indices, axes):
        return None
    if not isinstance(value, tvm.ir.TensorLoad) or not value.source.same_as(table):
        return None
    if len(value.indices) != 2 or not value.indices[1].same_as(axes[-1]):
        return None
    element = tirx.Var("element", str(index.dtype))

    def taken(node: Expr) -> Expr | None:
        if not isinstance(node, tvm.ir.TensorLoad) or not node.source.same_as(index):
            return None
        return element if _equal(node.indices, axes[:-1]) else None

    row, extent = rewrite(value.indices[0], taken), table.shape[0]
    count = extent if isinstance(extent, tvm.ir.Var) else tirx.Var("count", "int64")
    variables = [one for one in nodes(row) if isinstance(one, tvm.ir.Var)]
    if loads(row) or any(not one.same_as(element) and not one.same_as(count) for one in variables):
        return None
    return _Gather(operands[0], operands[1], row, element, count)


def _equal(indices: Sequence[Expr], variables: Sequence[Any]) -> bool:
    return len(indices) == len(variables) and all(
        index.same_as(variable) for index, variable in zip(indices, variables, strict=True)
    )
