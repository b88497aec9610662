"""softmax(q @ k, changed elementwise) @ v as one tensor program, whose scores never leave the
cache.

The transposes and slices by which exported graphs split and join heads become part of the program's
accesses.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, te, tirx

from compiler.passes.cpu.families.attention.emit import STAGES
from compiler.passes.graph.axis_parts import Part, read_part
from compiler.passes.graph.axis_repeats import Repeat, read_repeat
from compiler.passes.graph.channels_last import axes_of
from compiler.passes.graph.rewriting import constant_of, rebind, rewrite_functions
from compiler.tir.exprs import op_name

OPAQUE = {"op_pattern": 8}
"""Nothing is fused to the function."""

_CHANGES: dict[str, Callable[..., Any]] = {
    "relax.add": lambda a, b: a + b,
    "relax.subtract": lambda a, b: a - b,
    "relax.multiply": lambda a, b: a * b,
    "relax.divide": lambda a, b: a / b,
    "relax.maximum": tirx.max,
    "relax.minimum": tirx.min,
    "relax.where": lambda a, b, c: tirx.Select(a, b, c),
    "relax.tanh": tirx.tanh,
}
"""What may be done to scores between the product and the softmax."""


@dataclass(frozen=True)
class Place:
    """Where along an axis of a tensor a view reads: from `first` on, its own axis `at` counting, or
    there alone.

    count: the extent, None where it is all of the axis; times: how often the view has each place,
    one after the other.
    """

    at: int | None
    first: int = 0
    count: int | None = None
    times: int = 1

    def index(self, indices: Sequence[Any]) -> Any:
        """The index along the axis, given those of the view."""
        moved = tirx.IntImm("int64", 0) if self.at is None else indices[self.at]
        if self.times > 1:
            moved = tirx.floordiv(moved, tirx.IntImm("int64", self.times))
        return moved + self.first if self.first else moved


@dataclass(frozen=True)
class Access:
    """A view of `tensor`, a place for each of its axes, multiplied by `factor`."""

    tensor: Any
    places: tuple[Place, ...]
    factor: float = 1.0

    @property
    def rank(self) -> int:
        """How many axes the view has."""
        return sum(place.at is not None for place in self.places)

    def read(self, data: Any, indices: Sequence[Any]) -> Any:
        """The element at `indices` of the view."""
        return data(*(place.index(indices) for place in self.places))

    def extents(self, shape: Sequence[Any]) -> list[Any]:
        """The extents of the view, given those of the tensor: TE has its own dims."""
        counts = [
            extent if place.count is None else tirx.IntImm("int64", place.count)
            for place, extent in zip(self.places, shape, strict=True)
        ]
        kept = {
            place.at: count * place.times for place, count in zip(self.places, counts, strict=True)
        }
        return [kept[at] for at in range(self.rank)]

    def through_permutation(self, source: Any, axes: Sequence[int]) -> "Access":
        """The same view of what the tensor is a permutation of."""
        places = dict(zip(axes, self.places, strict=True))
        return replace(self, tensor=source, places=tuple(places[axis] for axis in range(len(axes))))

    def through_part(self, source: Any, part: Part) -> "Access":
        """The same view of what the tensor is a part of."""
        places = list(self.places)
        place = places[part.axis]
        places[part.axis] = replace(
            place,
            first=place.first + part.first,
            count=part.count if place.count is None else place.count,
        )
        return replace(self, tensor=source, places=tuple(places))

    def through_repeat(self, source: Any, repeat: Repeat) -> "Access | None":
        """The same view of what the tensor repeats an axis of, None where the view has a part of
        that axis.
        """
        places = list(self.places)
        place = places[repeat.axis]
        if place.at is None or place != Place(place.at) or repeat.axis == len(places) - 1:
            return None
        places[repeat.axis : repeat.axis + 1] = [replace(place, times=repeat.times), Place(None)]
        return replace(self, tensor=source, places=tuple(places))

    def through_reshape(self, source: Any) -> "Access | None":
        """The same view of what the tensor is with or without some axes of one place, None where
        the reshape did anything else.
        """
        shapes = source.ty.shape, self.tensor.ty.shape
        if not all(isinstance(shape, relax.ShapeExpr) for shape in shapes):
            return None
        left = list(zip(self.places, self.tensor.ty.shape.values, strict=True))
        places = []
        for extent in source.ty.shape.values:
            while left and _is_alone(*left[0]) and not tvm_ffi.structural_equal(extent, left[0][1]):
                left.pop(0)
            if left and tvm_ffi.structural_equal(extent, left[0][1]):
                places.append(left.pop(0)[0])
            elif getattr(extent, "value", None) == 1:
                places.append(Place(None))
            else:
                return None
        lost = any(not _is_alone(*each) for each in left)
        return None if lost else replace(self, tensor=source, places=tuple(places))


def _is_alone(place: Place, extent: Any) -> bool:
    """Whether a view reads the only place of an axis, and has no axis for it."""
    return place.at is None and getattr(extent, "value", None) == 1


@dataclass
class Change:
    """One elementwise operator on the scores: `operands` in order, None where the scores stand."""

    name: str
    operands: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class Attention:
    """What a second product needs: q [.., m, d], k [.., d, n], v [.., n, e], and the changes from
    the first to the last.

    order: the axes of [.., m, e] as the result has them.
    """

    q: Access
    k: Access
    v: Access
    changes: tuple[Change, ...]
    order: tuple[int, ...]


def fuse_attention(module: tvm.IRModule) -> tvm.IRModule:
    """The module with every float32 attention of known head size replaced; what nobody reads any
    more is removed.
    """
    return relax.transform.DeadCodeElimination()(rewrite_functions(_Rewriter(module), module))


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self.module = module
        self.used: Counter[Any] = Counter()
        self.turned: dict[Any, Any] = {}
        self.written: dict[Any, Any] = {}
        for function in module.functions.values():
            if isinstance(function, relax.Function):
                relax.analysis.post_order_visit(function, self._count)

    def _count(self, expr: Any) -> None:
        if op_name(expr) == "relax.permute_dims":
            self.turned[expr.args[0]] = expr
        for arg in getattr(expr, "args", None) or getattr(expr, "fields", None) or ():
            if isinstance(arg, relax.Var):
                self.used[arg] += 1

    def visit_var_binding_(self, binding: Any) -> None:
        name = op_name(binding.value)
        if name == "relax.permute_dims" and binding.value.args[0] in self.written:
            rebind(self, binding.var, self.written[binding.value.args[0]])
            return
        found = self._match(binding) if name == "relax.matmul" else None
        if found is None:
            super().visit_var_binding_(binding)
            return
        rebind(self, binding.var, self._call(found))
        if found.order != tuple(range(found.q.rank)):
            self.written[binding.var] = self.get_var_remap(binding.var)

    def _order(self, var: Any) -> tuple[int, ...]:
        """The order of axes in which `var` is read, where that is by one transpose which leaves
        rows whole.
        """
        as_it_is = tuple(range(var.ty.ndim))
        turned = (
            self.turned.get(var)
            if isinstance(var, relax.DataflowVar) and self.used[var] == 1
            else None
        )
        order = as_it_is if turned is None else axes_of(turned)
        return order if order[-1] == as_it_is[-1] else as_it_is

    def _call_of(self, expr: Any) -> Any:
        """The call that `expr` is bound to, else None."""
        bound = self.lookup_binding(expr) if isinstance(expr, relax.Var) else None
        return bound if isinstance(bound, relax.Call) else None

    def _bound(self, expr: Any, name: str) -> Any:
        """The same where it is of the operator `name`."""
        bound = self._call_of(expr)
        return bound if op_name(bound) == name else None

    def _match(self, binding: Any) -> Attention | None:
        call = binding.value
        if self.used[call.args[0]] != 1:
            return None
        scores, v = (self.visit_expr(arg) for arg in call.args)
        softmax = self._bound(scores, "relax.nn.softmax")
        if (
            softmax is None
            or str(call.ty.dtype) != "float32"
            or int(softmax.attrs.axis) not in (-1, softmax.ty.ndim - 1)
        ):
            return None
        changes: list[Change] = []
        product = self._product(softmax.args[0], softmax.ty, changes)
        if product is None:
            return None
        q, k, v = (
            self._access(product.args[0], -1),
            self._access(product.args[1], -2),
            self._access(v, -1, scaled=False),
        )
        factor = q.factor * k.factor
        if factor != 1:
            changes.append(Change("relax.multiply", [None, relax.const(factor, "float32")]))
        found = Attention(q, k, v, tuple(reversed(changes)), self._order(binding.var))
        return found if _suits(found) else None

    def _product(self, expr: Any, ty: Any, changes: list[Change]) -> Any:
        """The product that the scores come from; fills `changes`, the last first."""
        known: dict[Any, bool] = {}
        while True:
            bound = self.lookup_binding(expr) if isinstance(expr, relax.Var) else None
            name = op_name(bound)
            if (
                bound is None
                or (name != "relax.matmul" and name not in _CHANGES)
                or not _same_shape(bound.ty, ty)
            ):
                return None
            if name == "relax.matmul":
                return bound
            inner = [arg for arg in bound.args if self._leads_to_product(arg, ty, known)]
            if len(inner) != 1 or any(arg.ty.ndim > ty.ndim for arg in bound.args):
                return None
            changes.append(
                Change(name, [None if arg.same_as(inner[0]) else arg for arg in bound.args])
            )
            expr = inner[0]

    def _leads_to_product(self, expr: Any, ty: Any, known: dict[Any, bool]) -> bool:
        """Whether `expr` is a product after changes, all of type `ty`; `known` keeps the answers,
        without which operands that are read twice would be searched twice, and theirs four times.
        """
        bound = self.lookup_binding(expr) if isinstance(expr, relax.Var) else None
        if bound is None or not _same_shape(bound.ty, ty):
            return False
        if expr not in known:
            known[expr] = op_name(bound) == "relax.matmul" or (
                op_name(bound) in _CHANGES
                and any(self._leads_to_product(arg, ty, known) for arg in bound.args)
            )
        return known[expr]

    def _access(self, expr: Any, last: int, scaled: bool = True) -> Access:
        """The farthest tensor of which `expr` is a view whose axis `last` lies contiguous, `expr`
        itself without one.
        """
        best = now = Access(expr, tuple(Place(axis) for axis in range(expr.ty.ndim)))
        further: Access | None = now
        while further is not None and (scaled or further.factor == 1):
            now = further
            if now.places[-1].at == last % now.rank:
                best = now
            further = self._further(now)
        return best

    def _further(self, access: Access) -> Access | None:
        """The same view of the tensor before."""
        bound: Any = (
            self.lookup_binding(access.tensor) if isinstance(access.tensor, relax.Var) else None
        )
        name = op_name(bound)
        if name == "relax.permute_dims":
            return access.through_permutation(bound.args[0], axes_of(bound))
        if name in ("relax.reshape", "relax.squeeze"):
            repeated = read_repeat(self.module, self._call_of, bound)
            return (
                access.through_reshape(bound.args[0])
                if repeated is None
                else access.through_repeat(*repeated)
            )
        if name in ("relax.multiply", "relax.divide"):
            return self._unscaled(access, bound)
        found = read_part(self.module, bound)
        return None if found is None else access.through_part(*found)

    def _unscaled(self, access: Access, call: Any) -> Access | None:
        """The same view of what a call multiplies by a constant or divides by one, None where it
        does neither.
        """
        one, other = call.args
        if op_name(call) == "relax.multiply" and constant_of(self, one) is not None:
            one, other = other, one
        constant = constant_of(self, other)
        if constant is None or constant.value.numpy().size != 1 or one.ty.ndim != call.ty.ndim:
            return None
        factor = np.float64(constant.value.numpy().reshape(()))
        if op_name(call) == "relax.divide":
            factor = np.reciprocal(factor) if factor else np.float64("inf")
        return (
            replace(access, tensor=one, factor=access.factor * float(factor))
            if np.isfinite(factor)
            else None
        )

    def _call(self, found: Attention) -> Any:
        others = [
            operand
            for change in found.changes
            for operand in change.operands
            if operand is not None
        ]
        given = [found.q.tensor, found.k.tensor, found.v.tensor, *others]
        return self.builder_.call_te(
            lambda *tensors: attention(found, *tensors),
            *given,
            primfunc_name_hint="attention",
            primfunc_attrs=OPAQUE,
        )


def _same_shape(one: Any, other: Any) -> bool:
    left, right = getattr(one, "shape", None), getattr(other, "shape", None)
    if (
        not isinstance(left, relax.ShapeExpr)
        or not isinstance(right, relax.ShapeExpr)
        or one.ndim != other.ndim
    ):
        return False
    return all(map(tvm.sym.Analyzer().can_prove_equal, left.values, right.values))


def _suits(found: Attention) -> bool:
    """Whether the extents are known, heads are of one known size, and each row of q, k and v lies
    contiguous.
    """
    accesses = (found.q, found.k, found.v)
    if not all(
        isinstance(access.tensor.ty.shape, relax.ShapeExpr)
        and str(access.tensor.ty.dtype) == "float32"
        for access in accesses
    ):
        return False
    rank = found.q.rank
    if rank < 3 or any(access.rank != rank for access in accesses):
        return False
    if [access.places[-1].at for access in accesses] != [rank - 1, rank - 2, rank - 1]:
        return False
    q, k, v = (access.extents(access.tensor.ty.shape.values) for access in accesses)
    analyzer = tvm.sym.Analyzer()
    same = all(
        analyzer.can_prove_equal(a, b) and analyzer.can_prove_equal(a, c)
        for a, b, c in zip(q[:-2], k[:-2], v[:-2], strict=True)
    )
    sizes = [getattr(extent, "value", None) for extent in (q[-1], v[-1])]
    return same and all(
        size is not None and int(size) % 8 == 0 and 0 < int(size) <= 256 for size in sizes
    )


def attention(found: Attention, q: Any, k: Any, v: Any, *others: Any) -> Any:
    """The stages of STAGES in TE."""
    *batch, m, depth = found.q.extents(q.shape)
    n, width = found.k.extents(k.shape)[-1], found.v.extents(v.shape)[-1]
    d = te.reduce_axis((0, depth), name="d")
    scores = te.compute(
        (*batch, m, n),
        lambda *at: te.sum(
            found.q.read(q, [*at[:-1], d]) * found.k.read(k, [*at[:-2], d, at[-1]]), axis=[d]
        ),
        name=STAGES[0],
    )
    changed = te.compute(
        (*batch, m, n),
        lambda *at: _changed(found.changes, scores(*at), at, list(others)),
        name=STAGES[1],
    )
    j = te.reduce_axis((0, n), name="j")
    greatest = te.compute(
        (*batch, m), lambda *at: te.max(changed(*at, j), axis=[j]), name=STAGES[2]
    )
    powers = te.compute(
        (*batch, m, n), lambda *at: tirx.exp(changed(*at) - greatest(*at[:-1])), name=STAGES[3]
    )
    i = te.reduce_axis((0, n), name="i")
    total = te.compute((*batch, m), lambda *at: te.sum(powers(*at, i), axis=[i]), name=STAGES[4])
    k2 = te.reduce_axis((0, n), name="k")
    summed = te.compute(
        (*batch, m, width),
        lambda *at: te.sum(
            powers(*at[:-1], k2) * found.v.read(v, [*at[:-2], k2, at[-1]]), axis=[k2]
        ),
        name=STAGES[5],
    )

    def output(*at: Any) -> Any:
        place = [index for _, index in sorted(zip(found.order, at, strict=True))]
        return summed(*place) / total(*place[:-1])

    extents = (*batch, m, width)
    return te.compute(tuple(extents[axis] for axis in found.order), output, name=STAGES[6])


def _changed(changes: Sequence[Change], value: Any, at: Sequence[Any], others: list[Any]) -> Any:
    """The score at `at` after the changes; `others` are their tensors, taken from the front."""
    for change in changes:
        operands = [
            value if operand is None else _broadcast(others.pop(0), at)
            for operand in change.operands
        ]
        value = _CHANGES[change.name](*operands)
    return value


def _broadcast(tensor: Any, at: Sequence[Any]) -> Any:
    last = at[len(at) - len(tensor.shape) :]
    return tensor(
        *(
            0 if getattr(extent, "value", None) == 1 else index
            for extent, index in zip(tensor.shape, last, strict=True)
        )
    )
