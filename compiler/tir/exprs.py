"""Walking and rewriting scalar expressions of tensor programs."""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, tirx
from tvm.ir.prim import expr as prim
from tvm_ffi import VisitInterrupt

Expr = Any
"""A TVM scalar expression (`tvm.ir.Expr`)."""

Table = dict[Any, Expr]
"""What stands for variables."""

LEAVES = (ir.Var, prim.IntImm, prim.FloatImm, ir.StringImm, ir.GenericConst)
"""Expressions without subexpressions."""


_size, _item = map(tvm.get_global_func, ("ffi.ArraySize", "ffi.ArrayGetItem"))


def items(array: Any) -> list[Any]:
    """The elements of an array of TVM's, whose iterator takes twice as long over a few."""
    return [_item(array, index) for index in range(_size(array))]


def children(expr: Expr) -> list[Expr]:
    """The direct subexpressions; raises TypeError for a node that is not known."""
    kind: Any = type(expr)
    return _parts_of(kind)(expr)


@cache
def _parts_of(kind: type) -> Callable[[Expr], list[Expr]]:
    """How the subexpressions of a class of nodes are read; chosen once, since programs have
    hundreds of thousands of nodes.
    """
    for known, read in _PARTS:
        if issubclass(kind, known):
            return read
    if hasattr(kind, "a") and hasattr(kind, "b"):
        return lambda expr: [expr.a, expr.b]
    raise TypeError(f"unknown expression {kind.__name__}")


_PARTS: tuple[tuple[type | tuple[type, ...], Callable[[Expr], list[Expr]]], ...] = (
    (LEAVES, lambda expr: []),
    (ir.Call, lambda expr: [arg for arg in items(expr.args) if isinstance(arg, ir.Expr)]),
    (ir.TensorLoad, lambda expr: items(expr.indices)),
    (prim.Select, lambda expr: [expr.condition, expr.true_value, expr.false_value]),
    ((prim.Cast, prim.Broadcast), lambda expr: [expr.value]),
    ((prim.Not, prim.BitwiseNot), lambda expr: [expr.a]),
    (prim.Ramp, lambda expr: [expr.base, expr.stride]),
    (prim.Let, lambda expr: [expr.value, expr.body]),
    (prim.Shuffle, lambda expr: list(expr.vectors)),
)


def _rebuilt_call(expr: Expr, parts: list[Expr]) -> Expr:
    rest = iter(parts)
    args = [next(rest) if isinstance(arg, ir.Expr) else arg for arg in expr.args]
    return ir.Call(expr.op, args, attrs=expr.attrs, ty_args=list(expr.ty_args), ret_ty=expr.ty)


def _fold(expr: Expr, parts: list[Expr]) -> Expr:
    """A sum or a product of other parts, with constants folded if its parts are integers: TVM folds
    a real times 0 to 0, which loses NaN.
    """
    lhs, rhs = parts
    if not dtype_of(expr).startswith("int"):
        return type(expr)(lhs, rhs)
    return lhs + rhs if isinstance(expr, prim.Add) else lhs * rhs


_REBUILDS: dict[type, Callable[[Expr, list[Expr]], Expr]] = {
    prim.Add: _fold,
    prim.Mul: _fold,
    ir.Call: _rebuilt_call,
    ir.TensorLoad: lambda expr, parts: load(expr.source, parts),
    prim.Cast: lambda expr, parts: prim.Cast(expr.ty, parts[0]),
    prim.Broadcast: lambda expr, parts: prim.Broadcast(parts[0], expr.lanes),
    prim.Ramp: lambda expr, parts: prim.Ramp(*parts, expr.lanes),
    prim.Let: lambda expr, parts: prim.Let(expr.var, *parts),
    prim.Shuffle: lambda expr, parts: prim.Shuffle(parts, expr.indices),
}
"""How a node is made anew of other subexpressions, where its class does not take these alone."""


def _rebuild(expr: Expr, parts: list[Expr]) -> Expr:
    kind: Any = type(expr)
    rebuild = _REBUILDS.get(kind)
    return kind(*parts) if rebuild is None else rebuild(expr, parts)


def rewrite(expr: Expr, replace: Callable[[Expr], Expr | None]) -> Expr:
    """`expr` with every node for which `replace` gives an expression replaced (top down), shared
    nodes once. A binding whose value changes gets a variable of its own.
    """
    return _Rewriting(replace).visit(expr)


class _Rewriting:
    """One call of `rewrite`; functions inside of it would be in a circle, which only Python's
    search for garbage ends.
    """

    def __init__(self, replace: Callable[[Expr], Expr | None]) -> None:
        self._replace = replace
        # By address: constants of equal value and different dtype hash alike.
        self._done: dict[int, Expr] = {}

    def visit(self, node: Expr) -> Expr:
        key = node.__chandle__()
        if key in self._done:
            return self._done[key]
        new = self._replace(node)
        if new is None and type(node) is prim.Let:
            new = self._bound(node)
        if new is None:
            parts = children(node)
            fresh = [self.visit(part) for part in parts]
            same = all(map(_same, parts, fresh))
            new = node if same else _rebuild(node, fresh)
        self._done[key] = new
        return new

    def _bound(self, node: Expr) -> Expr | None:
        value = self.visit(node.value)
        if value.same_as(node.value):
            return None
        # TVM takes a variable of two values for an error, even in loops that exclude each other.
        fresh = tirx.Var(node.var.name, dtype_of(value))
        self._done[node.var.__chandle__()] = fresh
        return prim.Let(fresh, value, self.visit(node.body))


def _same(lhs: Expr, rhs: Expr) -> bool:
    return lhs is rhs or lhs.same_as(rhs)


def substitute(expr: Expr, values: Mapping[Any, Expr]) -> Expr:
    """`expr` with variables replaced."""
    return rewrite(expr, values.get) if values else expr


def replace_loads(
    expr: Expr, buffer: Any, value: Expr, table: Mapping[Any, Expr] = MappingProxyType({})
) -> Expr:
    """`expr` with `value`, as it is, for what is read of the buffer, and variables replaced
    elsewhere.
    """

    def visit(node: Expr) -> Expr | None:
        if isinstance(node, ir.TensorLoad) and node.source.same_as(buffer):
            return value
        return table.get(node) if isinstance(node, ir.Var) else None

    return rewrite(expr, visit)


def nodes(expr: Expr, into_loads: bool = True) -> Iterator[Expr]:
    """Every distinct node of `expr`, outermost first; the indices of loads only if asked."""
    seen: set[int] = set()
    stack = [expr]
    while stack:
        node = stack.pop()
        if node.__chandle__() in seen:
            continue
        seen.add(node.__chandle__())
        yield node
        if into_loads or not isinstance(node, ir.TensorLoad):
            stack.extend(children(node))


def loads(expr: Expr) -> list[Any]:
    """Every distinct buffer load in `expr`."""
    return [node for node in nodes(expr) if isinstance(node, ir.TensorLoad)]


def calls_any(expr: Expr, names: Container[str]) -> bool:
    """True if an operator of those names is called in `expr`."""

    def named(call: ir.Call) -> VisitInterrupt | None:
        return VisitInterrupt(call) if op_name(call) in names else None

    return tvm_ffi.structural_walk(expr, (ir.Call, named), order="pre") is not None


def uses(expr: Expr, var: Any) -> bool:
    """True if `var` occurs in `expr`."""
    return any(node.same_as(var) for node in nodes(expr))


def either(condition: Expr, then: Expr, otherwise: Expr) -> Expr:
    """A choice between two values that cost little, made here where the condition is constant."""
    known = as_int(condition)
    return (
        tirx.Select(condition, then, otherwise) if known is None else then if known else otherwise
    )


def extreme_or_nan(extreme: type, accumulator: Expr, value: Expr) -> Expr:
    """The maximum or minimum, prim.Max or prim.Min, of an accumulator and another value; NaN where
    one of both is.

    x86's maximum of an unordered pair is its second operand: a NaN enters by itself, so that only
    one in the accumulator has to be kept, which AVX-512 does with one comparison and a mask. With
    the sides of the choice exchanged, LLVM makes two comparisons of it; TVM has no vectors of
    isnan.
    """
    return tirx.Select(prim.LE(accumulator, accumulator), extreme(accumulator, value), accumulator)


def op_name(call: Any) -> str:
    """The operator a call names, empty for a call of anything else."""
    return str(getattr(getattr(call, "op", None), "name", ""))


def load(buffer: Any, indices: Sequence[Expr | int]) -> Expr:
    """buffer[indices]."""
    return tirx.BufferLoad(buffer, to_int64(indices))


def to_int64(indices: Sequence[Expr | int]) -> list[Expr]:
    """Indices or extents with Python integers as int64: as an index TVM makes int32 of them."""
    return [const(index) if isinstance(index, int) else index for index in indices]


def is_choice(expr: Expr) -> bool:
    """True if `expr` is an `if_then_else`, which evaluates one side only."""
    return isinstance(expr, ir.Call) and getattr(expr.op, "name", "").endswith(".if_then_else")


def const(value: int) -> Expr:
    """A new int64 constant, the type of every extent and index here.

    Never a kept one: NarrowDataType decides by the address of a constant how many bits it takes.
    """
    return tirx.IntImm("int64", value)


def as_int(expr: Expr) -> int | None:
    """The value of an integer constant, else None."""
    if isinstance(expr, int):
        return expr
    return int(expr.value) if isinstance(expr, prim.IntImm) else None


def require_int(expr: Expr) -> int:
    """The value of an integer that is known to be constant."""
    value = as_int(expr)
    assert value is not None
    return value


def let_in(name: str, value: Expr, body: Callable[[Expr], Expr]) -> Expr:
    """The body with a value that it uses more than once under a name."""
    var = tirx.Var(name, dtype_of(value))
    return prim.Let(var, value, body(var))


def dtype_of(expr: Expr) -> str:
    """The scalar dtype of an expression or buffer, as in `float32`."""
    ty = expr.ty
    return str(ty.dtype if hasattr(ty, "shape") and hasattr(ty, "storage_scope") else ty)


def bits_of(dtype: str) -> int:
    """Bits one element takes in memory."""
    return max(int(tvm.runtime.DataType(dtype).bits), 8)
