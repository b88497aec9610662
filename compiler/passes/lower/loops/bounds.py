"""Between which numbers the integers of a function lie, as far as loops, shapes and constants tell.

Conditions tell nothing here: what they exclude is not worth the time to find it out.
"""

from collections.abc import Callable
from itertools import product
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from compiler.tir.exprs import Expr, as_int, dtype_of, is_choice, op_name

Range = tuple[int, int]
"""The least and the greatest value."""

_ANY: Range = (-(2**63), 2**63 - 1)
_ADDRESS = "tirx.address_of"


class Bounds:
    """The bounds of a function's expressions, each found once; sums and products do not overflow.

    Extents of parameters are sizes. A cell in memory, by which TVM is kept from seeing a value, has
    the bounds of what is stored in the cell.
    """

    def __init__(self, func: tirx.PrimFunc) -> None:
        # By address, with the node: without a reference to it an address would be used again.
        self._known: dict[int, tuple[Any, Range]] = {}
        self._loops: dict[int, Any] = {}
        self._values: dict[int, list[Expr]] = {}
        self._cells: set[int] = set()
        for param in func.params:
            for extent in getattr(param.ty, "shape", ()):
                if isinstance(extent, tvm.ir.Var):
                    self._known[extent.__chandle__()] = extent, (0, _ANY[1])
        self._read(func.body)

    def of(self, expr: Expr) -> Range:
        """The bounds of an expression, of all lanes where it is a vector."""
        key = expr.__chandle__()
        if key not in self._known:
            # What depends on itself, as a cell that counts, may be anything.
            self._known[key] = expr, _ANY
            self._known[key] = expr, self._compute(expr)
        return self._known[key][1]

    def _read(self, body: Any) -> None:
        """Remember what the variables and cells of a statement hold."""
        shared: set[int] = set()

        def store(node: Any) -> None:
            self._values.setdefault(node.buffer.__chandle__(), []).append(node.value)

        def bind(node: Any) -> None:
            self._values[node.var.__chandle__()] = [node.value]

        def loop(node: Any) -> None:
            self._loops[node.loop_var.__chandle__()] = node

        def allocate(node: Any) -> None:
            if [as_int(extent) for extent in node.buffer.shape] == [1]:
                self._cells.add(node.buffer.__chandle__())

        def call(node: Any) -> None:
            # Who has a cell's address may store something else.
            address = op_name(node) == _ADDRESS
            for arg in node.args:
                operand = arg.source if address and isinstance(arg, tvm.ir.TensorLoad) else arg
                if isinstance(operand, tvm.ir.Var):
                    shared.add(operand.__chandle__())

        tvm_ffi.structural_walk(
            body,
            (
                (tirx.BufferStore, store),
                ((tirx.Bind, tirx.Let), bind),
                (tirx.For, loop),
                (tirx.AllocBuffer, allocate),
                (tvm.ir.Call, call),
            ),
            order="pre",
        )
        self._cells -= shared

    def _compute(self, expr: Any) -> Range:
        value = as_int(expr)
        if value is not None:
            return value, value
        least, greatest = _of_type(tvm.DataType(dtype_of(expr)))
        for kinds, rule in _RULES:
            if isinstance(expr, kinds):
                low, high = rule(self, expr)
                return max(low, least), min(high, greatest)
        return least, greatest

    def variable(self, var: Any) -> Range:
        """The range of a variable: of what its loop counts through, or of what is bound to it."""
        key = var.__chandle__()
        if key in self._loops:
            loop = self._loops[key]
            first, last = self.of(loop.min)
            return first, last + max(self.of(loop.extent)[1] - 1, 0)
        return self.one_of(self._values.get(key, []))

    def of_cell(self, load: Any) -> Range:
        """The range of what is stored in a cell; of other memory nothing is known."""
        key = load.source.__chandle__()
        return self.one_of(self._values.get(key, []) if key in self._cells else [])

    def one_of(self, values: list[Expr]) -> Range:
        """The bounds of something that is one of some expressions, or anything where none is."""
        lows, highs = zip(*map(self.of, values), strict=True) if values else ([_ANY[0]], [_ANY[1]])
        return min(lows), max(highs)


def _of_type(dtype: tvm.DataType) -> Range:
    if dtype.type_code == tvm.DataTypeCode.UINT:
        return 0, 2**dtype.bits - 1
    if dtype.type_code == tvm.DataTypeCode.INT:
        return -(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1
    return _ANY


def _operands(rule: Callable[[Range, Range], Range]) -> Callable[[Bounds, Any], Range]:
    """The bounds of an operation by those of its two operands."""
    return lambda bounds, expr: rule(bounds.of(expr.a), bounds.of(expr.b))


def _multiply(lhs: Range, rhs: Range) -> Range:
    corners = [x * y for x, y in product(lhs, rhs)]
    return min(corners), max(corners)


def _quotient(lhs: Range, rhs: Range) -> Range:
    """Rounded down or to zero; nothing is divided by zero."""
    (low, high), (least, greatest) = lhs, rhs
    if least < 0:
        return _ANY
    least, greatest = max(least, 1), max(greatest, 1)
    return low // (greatest if low >= 0 else least), max(high // least, 0)


def _rest(lhs: Range, rhs: Range) -> Range:
    """The rest of a quotient rounded to zero."""
    (low, high), (least, greatest) = lhs, rhs
    if least < 0:
        return _ANY
    greatest = max(greatest, 1)
    return (0 if low >= 0 else 1 - greatest), min(max(high, 0), greatest - 1)


def _bits(lhs: Range, rhs: Range) -> Range:
    """The numbers whose bits are among those of both."""
    highs = [high for low, high in (lhs, rhs) if low >= 0]
    return (0, min(highs)) if highs else _ANY


def _ramp(bounds: Bounds, ramp: Any) -> Range:
    (low, high), (least, greatest) = bounds.of(ramp.base), bounds.of(ramp.stride)
    last = int(ramp.ty.dtype.lanes) - 1
    return low + min(least * last, 0), high + max(greatest * last, 0)


def _choice(bounds: Bounds, call: Any) -> Range:
    return bounds.one_of(list(call.args)[1:]) if is_choice(call) else _ANY


_RULES: tuple[tuple[Any, Callable[[Bounds, Any], Range]], ...] = (
    (tvm.ir.Var, Bounds.variable),
    (tvm.ir.TensorLoad, Bounds.of_cell),
    (tirx.Add, _operands(lambda lhs, rhs: (lhs[0] + rhs[0], lhs[1] + rhs[1]))),
    (tirx.Sub, _operands(lambda lhs, rhs: (lhs[0] - rhs[1], lhs[1] - rhs[0]))),
    (tirx.Mul, _operands(_multiply)),
    (tirx.Min, _operands(lambda lhs, rhs: (min(lhs[0], rhs[0]), min(lhs[1], rhs[1])))),
    (tirx.Max, _operands(lambda lhs, rhs: (max(lhs[0], rhs[0]), max(lhs[1], rhs[1])))),
    ((tirx.Div, tirx.FloorDiv), _operands(_quotient)),
    (tirx.Mod, _operands(_rest)),
    (tirx.FloorMod, _operands(lambda lhs, rhs: _rest((0, _ANY[1]), rhs))),
    (tirx.RShift, _operands(lambda lhs, rhs: _quotient(lhs, (1, _ANY[1])))),
    (tirx.BitwiseAnd, _operands(_bits)),
    (tirx.Select, lambda bounds, expr: bounds.one_of([expr.true_value, expr.false_value])),
    (tvm.ir.Call, _choice),
    (tirx.Cast, lambda bounds, expr: bounds.of(expr.value)),
    (tirx.Broadcast, lambda bounds, expr: bounds.of(expr.value)),
    (tirx.Ramp, _ramp),
    (tirx.Let, lambda bounds, expr: bounds.of(expr.body)),
)
