"""Arithmetic on plain numbers: integers, floats and bool, symbolic where they come from dims."""

import math
import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

from tvm import tirx
from tvm.ir import Expr as PrimExpr

from compiler.ir.aten.memory import ListBox
from compiler.ir.aten.node import Measured, Node
from compiler.ir.aten.operands import scalar
from compiler.ir.aten.registry import plain
from compiler.ir.aten.structure import Number, kind_of, number_of
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known
from compiler.ir.ops.math import division
from compiler.ir.ops.math.division import Direction
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.pointwise import programs as pw
from compiler.ir.shapes import extents as ex


def _double(value: Any) -> Any:
    return ex.prim(value, "float64") if isinstance(value, PrimExpr) else float(value)


def _apply(
    b: Builder,
    node: Node,
    on_numbers: Callable[..., Any],
    on_exprs: Callable[..., Any],
    of_tensors: Callable[..., Any] | None,
    *args: Any,
) -> Any:
    """A function of numbers: at import where all are known, as an expression of dims, or by tensors
    of rank 0.
    """
    if any(isinstance(arg, Measured) for arg in args):
        if of_tensors is None:
            node.fail(
                "this operation on a float that only run time knows is not supported",
                reason="unsupported_form",
            )
        return of_tensors(*(scalar(b, arg, "float64") for arg in args))
    if not any(isinstance(arg, PrimExpr) for arg in args):
        return on_numbers(*args)
    if any(kind_of(arg) is Number.FLOAT for arg in args):
        args = tuple(ex.prim(_double(arg), "float64") for arg in args)
    else:
        args = tuple(
            ex.prim(ex.select(arg, 1, 0)) if kind_of(arg) is Number.BOOL else arg for arg in args
        )
    return b.facts.simplify(on_exprs(*args))


def _binary(
    names: tuple[str, ...],
    on_numbers: Callable[..., Any],
    on_exprs: Callable[..., Any],
    tensors: Callable[..., Any] | None,
) -> None:
    @plain(*names)
    def handler(b: Builder, node: Node) -> Any:
        one, other = node.args[0], node.args[1]
        measured = None if tensors is None else lambda p, q: Measured(tensors(b, p, q))
        return _apply(b, node, on_numbers, on_exprs, measured, one, other)

    handler.__doc__ = f"{names[0]} of two numbers."


_binary(("sub",), operator.sub, ex.sub, ew.subtract)


def _division(
    names: tuple[str, ...],
    on_numbers: Callable[..., Any],
    on_floats: Callable[..., Any],
    on_extents: Callable[..., Any],
    mode: Direction,
) -> None:
    @plain(*names)
    def handler(b: Builder, node: Node) -> Any:
        def on_exprs(p: Any, q: Any) -> Any:
            if kind_of(p) is Number.FLOAT:
                return on_floats(p, q)
            return on_extents(b, p, q, mode)

        return _apply(b, node, on_numbers, on_exprs, None, *node.args[:2])

    handler.__doc__ = f"{names[0]} of two numbers; a zero that run time divides by ends the run."


_division(
    ("floordiv", "__floordiv__"),
    operator.floordiv,
    ex.floordiv,
    division.quotient_of_extents,
    Direction.DOWN,
)
_division(("remainder",), operator.mod, ex.floormod, division.remainder_of_extents, Direction.DOWN)
_division(("fmod",), math.fmod, ex.truncmod, division.remainder_of_extents, Direction.TO_ZERO)


def _of_either(name: str, on_numbers: Callable[..., Any], on_exprs: Callable[..., Any]) -> None:
    @plain(name)
    def handler(b: Builder, node: Node) -> Any:
        items = node.items(node.names[0]) if len(node.args) == 1 else node.args
        return reduce(lambda p, q: _apply(b, node, on_numbers, on_exprs, None, p, q), items)

    handler.__doc__ = f"{name} of two numbers, or of a list of them."


_of_either("prim::min", min, ex.minimum)
_of_either("prim::max", max, ex.maximum)
_of_either("sum", operator.add, ex.add)


@plain("add")
def add(b: Builder, node: Node) -> Any:
    """Numbers added, lists or strings joined."""
    one, other = node.args[0], node.args[1]
    if isinstance(one, ListBox):
        joined = (item for name in node.names[:2] for item in node.items(name))
        return node.memory.cell(tuple(joined), ListBox)
    if isinstance(one, str):
        return one + other
    return _apply(b, node, operator.add, ex.add, lambda p, q: Measured(ew.add(b, p, q)), one, other)


@plain("mul")
def mul(b: Builder, node: Node) -> Any:
    """Numbers multiplied, a list repeated."""
    one, other = node.args[0], node.args[1]
    if isinstance(one, ListBox) or isinstance(other, ListBox):
        side = 0 if isinstance(one, ListBox) else 1
        items, count = node.items(node.names[side]), node.int(node.names[1 - side])
        return node.memory.cell(items * count, ListBox)
    return _apply(
        b, node, operator.mul, ex.mul, lambda p, q: Measured(ew.multiply(b, p, q)), one, other
    )


@plain("div")
def div(b: Builder, node: Node) -> Any:
    """The quotient as a float."""
    one, other = node.args[0], node.args[1]
    return _apply(
        b,
        node,
        operator.truediv,
        lambda p, q: ex.prim(p, "float64") / ex.prim(q, "float64"),
        lambda p, q: Measured(ew.divide(b, p, q)),
        one,
        other,
    )


@plain("pow")
def power(b: Builder, node: Node) -> Any:
    """A power; of dims, by a small whole exponent."""
    base, exponent = node.args
    if isinstance(base, PrimExpr) and isinstance(exponent, int) and 0 <= exponent <= 8:
        return (
            b.facts.simplify(ex.prod([base] * exponent))
            if kind_of(base) is Number.INT
            else math.prod([base] * exponent, start=1.0)
        )
    return _apply(
        b,
        node,
        operator.pow,
        lambda p, q: tirx.pow(ex.prim(p, "float64"), ex.prim(q, "float64")),
        None,
        base,
        exponent,
    )


@plain("rsub")
def rsub(b: Builder, node: Node) -> Any:
    """other - self."""
    return _apply(b, node, operator.sub, ex.sub, None, node.args[1], node.args[0])


def _comparison(
    names: tuple[str, ...],
    on_numbers: Callable[..., Any],
    on_exprs: Callable[..., Any],
    relation: str,
) -> None:
    @plain(*names)
    def handler(b: Builder, node: Node) -> Any:
        one, other = node.args[0], node.args[1]
        if kind_of(one) is None or kind_of(other) is None:
            return _compared(b, node, one, other, relation)
        measured = lambda p, q: number_of(b, ew.compare(b, p, q, relation), Number.BOOL)  # noqa: E731
        return decide(b, _apply(b, node, on_numbers, on_exprs, measured, one, other))

    handler.__doc__ = f"Whether one is {relation.replace('_', ' ')} the other."


def decide(b: Builder, condition: Any) -> Any:
    """True or False where the facts decide."""
    if not isinstance(condition, PrimExpr):
        return condition
    truth = b.facts.decide(condition)
    return condition if truth is None else truth


def _compared(b: Builder, node: Node, left: Any, right: Any, relation: str) -> Any:
    """Lists item by item, and strings."""
    if relation not in ("equal", "not_equal"):
        node.fail("these operands have no order", reason="unsupported_form")
    same = decide(b, same_values(b, node, left, right))
    return same if relation == "equal" else ex.negate(same)


def same_values(b: Builder, node: Node, left: Any, right: Any) -> Any:
    """The equality of two plain values: a bool or an expression."""
    if isinstance(left, (ListBox, tuple)) and isinstance(right, (ListBox, tuple)):
        p, q = (
            node.memory.content(item) if isinstance(item, ListBox) else item
            for item in (left, right)
        )
        if len(p) != len(q):
            return False
        result: Any = True
        for p_item, q_item in zip(p, q, strict=True):
            same = same_values(b, node, p_item, q_item)
            result = same if result is True else ex.both(result, same)
        return b.facts.simplify(result)
    if kind_of(left) is not None and kind_of(right) is not None:
        return b.facts.simplify(ex.equal(left, right))
    return bool(left == right)


_comparison(("eq",), operator.eq, ex.equal, "equal")
_comparison(("ne",), operator.ne, ex.not_equal, "not_equal")
_comparison(("lt",), operator.lt, ex.less, "less")
_comparison(("le",), operator.le, ex.less_equal, "less_equal")
_comparison(("gt",), operator.gt, ex.greater, "greater")
_comparison(("ge",), operator.ge, ex.greater_equal, "greater_equal")


def _bool(value: Any) -> Any:
    return ex.not_equal(value, 0) if kind_of(value) is not Number.BOOL else value


@plain("__and__", "__or__", "__xor__", "logical_and", "logical_or")
def logic(b: Builder, node: Node) -> Any:
    """Logic of bool, bitwise of known integers."""
    one, other = node.args
    name = node.kind.rpartition("::")[2].strip("_").removeprefix("logical_")
    if kind_of(one) is Number.INT and not isinstance(one, PrimExpr):
        return {"and": operator.and_, "or": operator.or_, "xor": operator.xor}[name](one, other)
    return decide(
        b, {"and": ex.both, "or": ex.either, "xor": ex.not_equal}[name](_bool(one), _bool(other))
    )


@plain("any", "all")
def of_list(b: Builder, node: Node) -> Any:
    """True if one, or each, of a list of numbers is not 0."""
    fold = ex.either if node.kind == "aten::any" else ex.both
    items = [_bool(item) for item in node.items(node.names[0])]
    return decide(b, reduce(fold, items, node.kind == "aten::all"))


@plain("__not__")
def negate(b: Builder, node: Node) -> Any:
    """not."""
    return decide(b, ex.negate(_bool(node.args[0])))


@plain("neg")
def negative(b: Builder, node: Node) -> Any:
    """The number with its sign turned."""
    return _apply(
        b,
        node,
        operator.neg,
        lambda p: ex.sub(0, p) if p.ty.dtype != "float64" else -p,
        lambda p: Measured(ew.subtract(b, scalar(b, 0.0, "float64"), p)),
        node.args[0],
    )


@plain("abs", "prim::abs")
def absolute(b: Builder, node: Node) -> Any:
    """Without its sign."""
    return _apply(b, node, abs, tirx.abs, None, node.args[0])


@plain("Bool")
def as_bool(b: Builder, node: Node) -> Any:
    """True if a number is not zero."""
    value = node.args[0]
    return decide(b, _bool(value)) if kind_of(value) is not None else bool(value)


@plain("Int", "IntImplicit", "ScalarImplicit", "item")
def as_int(b: Builder, node: Node) -> Any:
    """Truncated to an integer."""
    value = node.args[0]
    if kind_of(value) is Number.BOOL and isinstance(value, PrimExpr):
        return ex.select(value, 1, 0)
    if kind_of(value) is Number.FLOAT:
        return _integer_by(b, node, tirx.trunc, int)
    return int(value) if isinstance(value, (bool, str)) else value


@plain("Float", "FloatImplicit")
def as_float(b: Builder, node: Node) -> Any:
    """A number as a float."""
    value = node.args[0]
    return value if isinstance(value, Measured) else _double(value)


@plain("floor")
def floor(b: Builder, node: Node) -> Any:
    """Rounded down, to an integer."""
    return _integer_by(b, node, tirx.floor, math.floor)


@plain("ceil")
def ceil(b: Builder, node: Node) -> Any:
    """Rounded up, to an integer."""
    return _integer_by(b, node, tirx.ceil, math.ceil)


@plain("round")
def round_number(b: Builder, node: Node) -> Any:
    """The nearest integer, halves to even."""
    value = node.args[0]
    return (
        value
        if kind_of(value) is Number.INT
        else _apply(b, node, lambda p: float(round(p)), tirx.nearbyint, None, value)
    )


def _integer_by(
    b: Builder, node: Node, scalar_of: Callable[[Any], Any], of_number: Callable[[Any], Any]
) -> Any:
    value = node.args[0]
    if kind_of(value) is Number.INT:
        return value
    if isinstance(value, PrimExpr):
        inner = _integral(value)
        if inner is not None:
            return inner
        integer = tirx.Cast("int64", scalar_of(value))
        if b.facts.is_nonnegative(value):
            return b.symbol(integer, "rounded")
        return b.known_integers(b.tensor(Known.of([integer])), "rounded").scalars()[0]
    if isinstance(value, Measured):
        return number_of(
            b,
            ew.cast(
                b, ew.unary(b, value.tensor, lambda v: _round_emit(b, value, scalar_of)), "int64"
            ),
            Number.INT,
        )
    return of_number(value)


def _round_emit(b: Builder, value: Measured, scalar_of: Callable[[Any], Any]) -> Any:
    return b.tensor(pw.pointwise(b, scalar_of, value.tensor, name="rounded")).expr


def _integral(value: PrimExpr) -> Any:
    """The integer expression that a float expression is a cast of."""
    return value.value if isinstance(value, tirx.Cast) and value.value.ty.dtype == "int64" else None


def _float_function(
    name: str, on_numbers: Callable[[float], float], on_exprs: Callable[[Any], Any]
) -> None:
    @plain(name)
    def handler(b: Builder, node: Node) -> Any:
        return _apply(
            b, node, on_numbers, lambda p: on_exprs(ex.prim(p, "float64")), None, node.args[0]
        )

    handler.__doc__ = f"{name} of a number."


for _name, _number, _expr in (
    ("sqrt", math.sqrt, tirx.sqrt), ("exp", math.exp, tirx.exp), ("log", math.log, tirx.log),
    ("log2", math.log2, tirx.log2),
    ("sin", math.sin, tirx.sin), ("cos", math.cos, tirx.cos), ("tanh", math.tanh, tirx.tanh),
):  # fmt: skip
    _float_function(_name, _number, _expr)


@plain("isinf", "isnan")
def odd_number(b: Builder, node: Node) -> bool:
    """True if a known number is an infinity, or is not a number."""
    return bool(
        {"aten::isinf": math.isinf, "aten::isnan": math.isnan}[node.kind](node.float(node.names[0]))
    )
