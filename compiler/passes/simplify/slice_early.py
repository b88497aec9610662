"""Takes one place of an axis before what computes it by itself, not after.

The scores of a prompt's last token, or the class of an image, are one row of what the last layer
gives. Its matmuls and the queries of its attention are then wanted for that row alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx

from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.match.block_matmuls import is_blockwise_matmul
from compiler.passes.match.positions import Axes, extents, operand_axes, operands_of, same
from compiler.passes.match.rewriting import CallRewriter, rewrite_functions
from compiler.tir.exprs import Expr, as_int, const, op_name, substitute
from compiler.tir.stages import read_copy


@dataclass(frozen=True)
class Position:
    """One position along an axis of a tensor."""

    axis: int
    index: Expr

    def along(self, axis: int) -> "Position":
        """The same position of another axis."""
        return Position(axis, self.index)

    def equals(self, rhs: "Position") -> bool:
        """True if both are known to be one position of one axis."""
        return self.axis == rhs.axis and same(self.index, rhs.index)


@dataclass(frozen=True)
class SliceEarly(ModulePass):
    """Moves slices of one place in front of operators that compute each place by itself, as far as
    a matmul is computed for one place instead of all.
    """

    name = "slice_early"
    phase = Phase.GRAPH

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every Relax function and drops dead bindings."""
        return relax.transform.DeadCodeElimination()(rewrite_functions(_Rewriter(module)))


def _is_matmul(call: Any) -> bool:
    return op_name(call) == "relax.matmul" or is_blockwise_matmul(call)


def read_slice(module: tvm.IRModule, call: Any) -> tuple[Any, Position] | None:
    """The tensor that a call takes one place of, with its other axes whole; None for any other."""
    name = op_name(call)
    if name == "relax.call_tir" and len(call.args[1].fields) == 1:
        source = call.args[1].fields[0]
        indices = _indices_read(module[call.args[0]], source)
    elif name == "relax.strided_slice" and len(call.args) == 4:
        source = call.args[0]
        indices = _indices_sliced(call)
    else:
        return None
    before, after = extents(source), extents(call)
    if before is None or after is None or indices is None or len(before) != len(after):
        return None
    changed = [i for i, index in indices.items() if index is not None]
    if len(changed) != 1 or as_int(after[changed[0]]) != 1:
        return None
    if any(not same(before[i], after[i]) for i in range(len(before)) if i != changed[0]):
        return None
    index = indices[changed[0]]
    assert index is not None
    return source, Position(changed[0], tvm.sym.Analyzer().simplify(index))


def _indices_sliced(call: Any) -> dict[int, Expr | None] | None:
    axes, first = (getattr(part, "fields", None) for part in call.args[1:3])
    if axes is None or first is None or len(axes) != 1 or as_int(axes[0]) is None:
        return None
    rank, index = call.args[0].ty.ndim, first[0]
    number = as_int(index)
    # An index may be clamped, or count from the end.
    if (number is None and not call.attrs.assume_inbound) or (number is not None and number < 0):
        return None
    return {int(axes[0]) % rank: index}


def _indices_read(func: Any, source: Any) -> dict[int, Expr | None] | None:
    """By axis, where a program that copies its input reads an axis of one place, None where it
    reads place i for place i; in terms of the caller's dims.
    """
    copied = read_copy(func)
    own = extents(source)
    if copied is None or own is None:
        return None
    dims = {
        extent: actual
        for extent, actual in zip(func.params[0].ty.shape, own, strict=True)
        if isinstance(extent, tvm.ir.Var)
    }
    reads: dict[int, Expr | None] = {}
    result = list(func.params[-1].ty.shape)
    for axis, (var, index) in enumerate(zip(*copied, strict=True)):
        if as_int(result[axis]) == 1:
            reads[axis] = substitute(index, {var: const(0), **dims})
        elif index.same_as(var):
            reads[axis] = None
        else:
            return None
    # Axes of one place that stay are no slices.
    return {
        axis: None if index is not None and as_int(own[axis]) == 1 else index
        for axis, index in reads.items()
    }


class _Plan:
    """Which bindings of a block are computed for one place alone, and which that is."""

    def __init__(self, module: tvm.IRModule, block: relax.BindingBlock) -> None:
        self.module = module
        self.taken = {
            binding.var: sliced
            for binding in block.bindings
            if isinstance(binding, relax.VarBinding)
            and (sliced := read_slice(module, binding.value)) is not None
        }
        self.positions: dict[Any, Position] = {}
        if self.taken:
            self.positions = self._choose(block)

    def axes(self, call: Any, axis: int) -> Axes | None:
        """`operand_axes`, of matmuls by block-wise quantized weights, too."""
        if not is_blockwise_matmul(call):
            return operand_axes(call, axis)
        shape = self.module[call.args[0]].params[0].ty.shape
        # The program has to be one for any number of rows.
        if axis >= call.ty.ndim - 1 or not isinstance(shape[axis], tvm.ir.Var):
            return None
        return [axis, *(None for _ in call.args[1].fields[1:])]

    def _choose(self, block: relax.BindingBlock) -> dict[Any, Position]:
        wanted: dict[Any, list[Position | None]] = {}
        chosen: dict[Any, Position] = {}
        for binding in reversed(block.bindings):
            var, value = binding.var, binding.value
            asked = wanted.get(var, [])
            if var in self.taken:
                source, taken = self.taken[var]
                wanted.setdefault(source, []).append(taken)
                continue
            position = self._common_position(var, asked)
            axes = None if position is None else self._pushed(binding, position)
            if position is None or axes is None:
                _ask_whole(value, wanted)
                continue
            chosen[var] = position
            for operand, axis in zip(operands_of(value), axes, strict=True):
                if isinstance(operand, relax.Var):
                    one = None if axis is None else position.along(axis)
                    wanted.setdefault(operand, []).append(one)
        return self._retain_matmuls(block, chosen)

    def _common_position(self, var: Any, asked: list[Position | None]) -> Position | None:
        """The place that all readers want, None where they want more."""
        if not asked or not isinstance(var, relax.DataflowVar):
            return None
        first = asked[0]
        if first is None or any(one is None or not one.equals(first) for one in asked[1:]):
            return None
        return first

    def _pushed(self, binding: Any, position: Position) -> Axes | None:
        value = binding.value
        if not isinstance(binding, relax.VarBinding) or not isinstance(value, tvm.ir.Call):
            return None
        return self.axes(value, position.axis)

    def _retain_matmuls(
        self, block: relax.BindingBlock, chosen: Mapping[Any, Position]
    ) -> dict[Any, Position]:
        """Those of the bindings that are matmuls, or computed of such."""
        retained: dict[Any, Position] = {}
        for binding in block.bindings:
            position = chosen.get(binding.var)
            if position is None:
                continue
            axes = self.axes(binding.value, position.axis)
            assert axes is not None
            above = zip(operands_of(binding.value), axes, strict=True)
            if _is_matmul(binding.value) or any(
                axis is not None and operand in retained
                for operand, axis in above
                if isinstance(operand, relax.Var)
            ):
                retained[binding.var] = position
        return retained


def _ask_whole(value: Any, wanted: dict[Any, list[Position | None]]) -> None:
    def visit(node: Any) -> None:
        if isinstance(node, relax.Var):
            wanted.setdefault(node, []).append(None)

    relax.analysis.post_order_visit(value, visit)


@relax.expr_functor.mutator
class _Rewriter(CallRewriter):
    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._plan: _Plan | None = None
        self._sliced: dict[tuple[Any, int], Any] = {}

    def visit_dataflow_block_(self, block: Any) -> Any:
        around, self._plan, self._sliced = self._plan, _Plan(self.module, block), {}
        try:
            return super().visit_dataflow_block_(block)
        finally:
            self._plan = around

    def visit_var_binding_(self, binding: Any) -> None:
        plan, var = self._plan, binding.var
        if plan is not None and var in plan.taken and plan.taken[var][0] in plan.positions:
            # It is what is computed of its source.
            self.rebind(var, self.visit_expr(plan.taken[var][0]))
        elif plan is not None and var in plan.positions:
            self.rebind(var, self._at_position(plan, binding.value, plan.positions[var]))
        else:
            super().visit_var_binding_(binding)

    def _at_position(self, plan: _Plan, call: Any, position: Position) -> Any:
        axes = plan.axes(call, position.axis)
        assert axes is not None
        operands = [
            self.visit_expr(operand)
            if axis is None or operand in plan.positions
            else self._slice(operand, position.along(axis))
            for operand, axis in zip(operands_of(call), axes, strict=True)
        ]
        name = op_name(call)
        if name == "relax.call_tir":
            ty = relax.TensorType(_with_one(call, position.axis), call.ty.dtype)
            return relax.Call(
                call.op, [call.args[0], relax.Tuple(operands)], call.attrs, [ty], span=call.span
            )
        if name == "relax.concat":
            operands = [relax.Tuple(operands)]
        elif name == "relax.reshape":
            operands[1] = relax.ShapeExpr(_with_one(call, position.axis))
        return relax.Call(call.op, operands, call.attrs, call.ty_args, span=call.span)

    def _slice(self, operand: Any, position: Position) -> Any:
        """The place of a tensor that is computed whole."""
        key = (operand, position.axis)
        if key not in self._sliced or not isinstance(operand, relax.Var):
            end = tvm.sym.Analyzer().simplify(position.index + const(1))
            taken = relax.op.strided_slice(
                self.visit_expr(operand),
                [position.axis],
                [position.index],
                [end],
                assume_inbound=True,
            )
            self._sliced[key] = self.builder_.emit(taken)
        return self._sliced[key]


def _with_one(call: Any, axis: int) -> list[Any]:
    """The extents of a result of one place."""
    shape = extents(call)
    assert shape is not None
    return [*shape[:axis], tirx.IntImm("int64", 1), *shape[axis + 1 :]]
