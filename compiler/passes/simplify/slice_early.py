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
from compiler.passes.match.block_matmuls import is_product
from compiler.passes.match.positions import Axes, extents, operand_axes, operands_of, same
from compiler.passes.match.rewriting import rebind, rewrite_functions
from compiler.tir.exprs import Expr, as_int, const, op_name, substitute
from compiler.tir.stages import read_copy


@dataclass(frozen=True)
class Place:
    """One place along an axis of a tensor."""

    axis: int
    index: Expr

    def along(self, axis: int) -> "Place":
        """The same place of another axis."""
        return Place(axis, self.index)

    def equals(self, other: "Place") -> bool:
        """Whether both are known to be one place of one axis."""
        return self.axis == other.axis and same(self.index, other.index)


@dataclass(frozen=True)
class SliceEarly(ModulePass):
    """Moves slices of one place in front of operators that compute each place by itself, as far as
    a matmul is computed for one place instead of all.
    """

    name = "slice_early"
    phase = Phase.GRAPH

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every Relax function and drops dead bindings."""
        return relax.transform.DeadCodeElimination()(rewrite_functions(_Rewriter(module), module))


def _is_product(call: Any) -> bool:
    return op_name(call) == "relax.matmul" or is_product(call)


def place_taken(module: tvm.IRModule, call: Any) -> tuple[Any, Place] | None:
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
    return source, Place(changed[0], tvm.sym.Analyzer().simplify(index))


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
    found: dict[int, Expr | None] = {}
    result = list(func.params[-1].ty.shape)
    for axis, (var, index) in enumerate(zip(*copied, strict=True)):
        if as_int(result[axis]) == 1:
            found[axis] = substitute(index, {var: const(0), **dims})
        elif index.same_as(var):
            found[axis] = None
        else:
            return None
    # Axes of one place that stay are no slices.
    return {
        axis: None if index is not None and as_int(own[axis]) == 1 else index
        for axis, index in found.items()
    }


class _Plan:
    """Which bindings of a block are computed for one place alone, and which that is."""

    def __init__(self, module: tvm.IRModule, block: relax.BindingBlock) -> None:
        self.module = module
        self.taken = {
            binding.var: found
            for binding in block.bindings
            if isinstance(binding, relax.VarBinding)
            and (found := place_taken(module, binding.value)) is not None
        }
        self.places: dict[Any, Place] = {}
        if self.taken:
            self.places = self._found(block)

    def axes(self, call: Any, axis: int) -> Axes | None:
        """As `operand_axes`, of matmuls by numbers of few bits too."""
        if not is_product(call):
            return operand_axes(call, axis)
        given = self.module[call.args[0]].params[0].ty.shape
        # The program has to be one for any number of rows.
        if axis >= call.ty.ndim - 1 or not isinstance(given[axis], tvm.ir.Var):
            return None
        return [axis, *(None for _ in call.args[1].fields[1:])]

    def _found(self, block: relax.BindingBlock) -> dict[Any, Place]:
        wanted: dict[Any, list[Place | None]] = {}
        chosen: dict[Any, Place] = {}
        for binding in reversed(block.bindings):
            var, value = binding.var, binding.value
            asked = wanted.get(var, [])
            if var in self.taken:
                source, taken = self.taken[var]
                wanted.setdefault(source, []).append(taken)
                continue
            place = self._one(var, asked)
            axes = None if place is None else self._pushed(binding, place)
            if place is None or axes is None:
                _ask_whole(value, wanted)
                continue
            chosen[var] = place
            for operand, axis in zip(operands_of(value), axes, strict=True):
                if isinstance(operand, relax.Var):
                    one = None if axis is None else place.along(axis)
                    wanted.setdefault(operand, []).append(one)
        return self._worth(block, chosen)

    def _one(self, var: Any, asked: list[Place | None]) -> Place | None:
        """The place that all readers want, None where they want more."""
        if not asked or not isinstance(var, relax.DataflowVar):
            return None
        first = asked[0]
        if first is None or any(one is None or not one.equals(first) for one in asked[1:]):
            return None
        return first

    def _pushed(self, binding: Any, place: Place) -> Axes | None:
        value = binding.value
        if not isinstance(binding, relax.VarBinding) or not isinstance(value, tvm.ir.Call):
            return None
        return self.axes(value, place.axis)

    def _worth(self, block: relax.BindingBlock, chosen: Mapping[Any, Place]) -> dict[Any, Place]:
        """Those of the bindings that are matmuls, or computed of such."""
        kept: dict[Any, Place] = {}
        for binding in block.bindings:
            place = chosen.get(binding.var)
            if place is None:
                continue
            axes = self.axes(binding.value, place.axis)
            assert axes is not None
            above = zip(operands_of(binding.value), axes, strict=True)
            if _is_product(binding.value) or any(
                axis is not None and operand in kept
                for operand, axis in above
                if isinstance(operand, relax.Var)
            ):
                kept[binding.var] = place
        return kept


def _ask_whole(value: Any, wanted: dict[Any, list[Place | None]]) -> None:
    def visit(node: Any) -> None:
        if isinstance(node, relax.Var):
            wanted.setdefault(node, []).append(None)

    relax.analysis.post_order_visit(value, visit)


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self.module = module
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
        if plan is not None and var in plan.taken and plan.taken[var][0] in plan.places:
            # It is what is computed of its source.
            rebind(self, var, self.visit_expr(plan.taken[var][0]))
        elif plan is not None and var in plan.places:
            rebind(self, var, self._of_one_place(plan, binding.value, plan.places[var]))
        else:
            super().visit_var_binding_(binding)

    def _of_one_place(self, plan: _Plan, call: Any, place: Place) -> Any:
        axes = plan.axes(call, place.axis)
        assert axes is not None
        operands = [
            self.visit_expr(operand)
            if axis is None or operand in plan.places
            else self._slice(operand, place.along(axis))
            for operand, axis in zip(operands_of(call), axes, strict=True)
        ]
        name = op_name(call)
        if name == "relax.call_tir":
            ty = relax.TensorType(_with_one(call, place.axis), call.ty.dtype)
            return relax.Call(
                call.op, [call.args[0], relax.Tuple(operands)], call.attrs, [ty], span=call.span
            )
        if name == "relax.concat":
            operands = [relax.Tuple(operands)]
        elif name == "relax.reshape":
            operands[1] = relax.ShapeExpr(_with_one(call, place.axis))
        return relax.Call(call.op, operands, call.attrs, call.ty_args, span=call.span)

    def _slice(self, operand: Any, place: Place) -> Any:
        """The place of a tensor that is computed whole."""
        key = (operand, place.axis)
        if key not in self._sliced or not isinstance(operand, relax.Var):
            end = tvm.sym.Analyzer().simplify(place.index + const(1))
            taken = relax.op.strided_slice(
                self.visit_expr(operand), [place.axis], [place.index], [end], assume_inbound=True
            )
            self._sliced[key] = self.builder_.emit(taken)
        return self._sliced[key]


def _with_one(call: Any, axis: int) -> list[Any]:
    """The extents of a result of one place."""
    whole = extents(call)
    assert whole is not None
    return [*whole[:axis], tirx.IntImm("int64", 1), *whole[axis + 1 :]]
