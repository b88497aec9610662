"""Ranges, multiples and equalities of dims, in one analyzer that
simplification uses.
"""

from dataclasses import replace
from typing import Any

import tvm
from tvm import sym, tirx
from tvm.ir import Expr as PrimExpr

from compiler.errors import ImportFailed
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent, Scalar
from relaxd.contract.dims.dims import Dim
from relaxd.contract.dims.names import identifier_of, option_name

UNBOUNDED = 1 << 40
"""Replaces a missing maximum: no tensor of ours has that many elements along an axis."""

_KEEP_SIGN = ("tirx.floor", "tirx.ceil", "tirx.trunc", "tirx.nearbyint", "tirx.round", "tirx.sqrt")


class Facts:
    """The dims of a model with their TVM variables, and an analyzer that decides conditions over
    them.

    dims: by name, in the order in which the import met them.
    ranges: the dims that may take more than one value, by their variable.
    symbols: every variable that an extent may hold, including sizes that are not dims.
    integers: the variables of `integer`.
    reserved: names that declarations give to dims which the import meets later.

    A variable is called by the identifier of its dim (`relaxd.contract.dims.names`).
    """

    def __init__(self) -> None:
        self.analyzer = sym.Analyzer()
        self._in_units = sym.Analyzer()
        self._deciders = [self.analyzer]
        self.dims: dict[str, Dim] = {}
        self.ranges: dict[tirx.Var, Dim] = {}
        self.symbols: set[PrimExpr] = set()
        self.integers: set[tirx.Var] = set()
        self._names: set[str] = set()
        self.reserved: frozenset[str] = frozenset()
        self._extents: dict[str, Extent] = {}
        self._introduced: set[tirx.Var] = set()

    def dim(self, name: str, declared: Dim | None = None) -> Extent:
        """The extent of a dim, which is declared at its first use; a dim with one allowed value
        gives that integer.
        """
        if name not in self.dims:
            dim = declared or Dim(name)
            self._extents[name] = dim.lowest if dim.fixed else self._declared(dim)
            self.dims[name] = dim
        return self._extents[name]

    def limit(self, name: str, most: int) -> None:
        """State the greatest value of a dim that had none; what was decided before stays."""
        before = self.dims[name]
        self.dims[name] = replace(before, max=most)
        self.ranges = {
            variable: self.dims[name] if dim is before else dim
            for variable, dim in self.ranges.items()
        }

    def _declared(self, dim: Dim) -> tirx.Var:
        variable = self._variable(dim)
        if dim.multiple > 1:
            self.analyzer.update(variable, sym.ModularSet(dim.multiple, 0), True)
        self._bind(variable, dim.lowest, dim.highest, dim.multiple)
        return variable

    def _variable(self, dim: Dim) -> tirx.Var:
        variable = tirx.Var(identifier_of(dim.name), "int64")
        self.symbols.add(variable)
        self.ranges[variable] = dim
        return variable

    def _bind(self, variable: tirx.Var, low: int, high: int | None, multiple: int = 1) -> None:
        """Give the analyzers a dim's range. The second one writes the dim as a number of units of
        its multiple, which decides what the multiple implies.
        """
        high = UNBOUNDED if high is None else high
        self.analyzer.bind(variable, _range(low, high))
        if multiple == 1:
            self._in_units.bind(variable, _range(low, high))
            return
        self._deciders = [self.analyzer, self._in_units]
        units = tirx.Var(f"{variable.name}_units", "int64")
        self._in_units.bind(units, _range(-(-low // multiple), high // multiple))
        self._in_units.bind(variable, units * tirx.IntImm("int64", multiple))

    def fresh(self, hint: str, low: int = 0, high: int | None = None) -> tirx.Var:
        """Make a new dim for an extent that nobody declared, of `low` and more; `hint` is made
        unique.
        """
        assert low >= 0, hint
        name = self._unique(hint)
        self.dims[name] = Dim(name, low, high)
        variable = self._extents[name] = self._variable(self.dims[name])
        self._introduced.add(variable)
        self._bind(variable, low, high)
        return variable

    def integer(self, hint: str, most: int) -> tuple[tirx.Var, tirx.Var]:
        """Make two variables, each from 0 to `most`, whose difference is a run-time integer of
        either sign.

        One variable cannot hold such an integer: TVM takes every variable of a shape for 0 or more,
        and simplifies by it. The two are no dims: a run knows them, a caller does not.
        """
        name = self._unique(hint)
        parts = tirx.Var(f"{name}_above", "int64"), tirx.Var(f"{name}_below", "int64")
        self._names.add(name)
        for variable in parts:
            self.symbols.add(variable)
            self.integers.add(variable)
            self._introduced.add(variable)
            self._bind(variable, 0, most)
        return parts

    def _unique(self, hint: str) -> str:
        name = hint
        while name in self.dims or name in self._names or name in self.reserved:
            stem, _, count = name.rpartition("_")
            name = f"{stem}_{int(count) + 1}" if stem and count.isdigit() else f"{name}_1"
        return name

    def has_integers(self, extent: Scalar) -> bool:
        """Find run-time integers in an expression, which may be negative unless it is checked."""
        if not self.integers or not isinstance(extent, PrimExpr):
            return False
        return any(var in self.integers for var in tirx.analysis.undefined_vars(extent))

    def confine(self, condition: Scalar, message: str) -> None:
        """Narrow the range of a dim that every run requires to be one number. The analyzers do not
        learn of it: what is emitted already is written in terms of the dim.

        Raises ImportFailed where the declared range has a maximum and so other values.
        """
        condition = self.simplify(condition)
        sides = (condition.a, condition.b) if isinstance(condition, tirx.EQ) else ()
        for variable, number in zip(sides, sides[::-1], strict=True):
            dim = self.ranges.get(variable) if isinstance(variable, tirx.Var) else None
            value = ex.plain(number)
            if dim is None or variable in self._introduced or not isinstance(value, int):
                continue
            if dim.highest is not None and not dim.lowest == dim.highest == value:
                raise ImportFailed(
                    f"dim {dim.name} can only be {value}: {message}",
                    reason="fixed_dim",
                    hint=f"declare it so: {option_name(dim.name)}={value}",
                )
            self.ranges[variable] = self.dims[dim.name] = Dim(dim.name, value, value)

    def size(self, name: str) -> PrimExpr:
        """Make a variable for the size of an axis as the caller passes it, which is not a dim of
        the model.
        """
        variable = tirx.Var(name, "int64")
        self.symbols.add(variable)
        self._bind(variable, 0, None)
        return variable

    def simplify(self, value: Scalar) -> Any:
        """The simplest known form; constants come back as Python values."""
        value = ex.plain(value)
        return ex.plain(self.analyzer.simplify(value)) if isinstance(value, PrimExpr) else value

    def decide(self, condition: Scalar) -> bool | None:
        """True or False if the facts decide the condition, else None."""
        condition = self.simplify(condition)
        if not isinstance(condition, PrimExpr):
            return bool(condition)
        for analyzer in self._deciders:
            if analyzer.can_prove(condition):
                return True
            if analyzer.can_prove(tirx.Not(condition)):
                return False
        return None

    def is_nonnegative(self, value: Scalar) -> bool:
        """Prove a number to be 0 or more; of floats, by the signs of their parts."""
        value = self.simplify(value)
        if not isinstance(value, PrimExpr):
            return value >= 0
        match value:
            case tirx.Cast():
                return self.is_nonnegative(value.value)
            case tirx.Add() | tirx.Mul() | tirx.Div() | tirx.FloorDiv() | tirx.Min():
                parts = all(map(self.is_nonnegative, (value.a, value.b)))
            case tirx.Max():
                parts = any(map(self.is_nonnegative, (value.a, value.b)))
            case _:
                name = str(getattr(getattr(value, "op", None), "name", ""))
                parts = name in _KEEP_SIGN and self.is_nonnegative(value.args[0])
        return parts or (value.ty.dtype == "int64" and self.bounds(value)[0] >= 0)

    def is_introduced(self, extent: Extent) -> bool:
        """True for an extent that depends on a dim that the import introduced: no declaration can
        bound it.
        """
        return any(var in self._introduced for var in tirx.analysis.undefined_vars(ex.prim(extent)))

    def same(self, a: Extent, b: Extent) -> bool | None:
        """Compare two extents for every allowed value of the dims: True (always equal), False
        (never), or None.
        """
        a, b = ex.plain(a), ex.plain(b)
        if isinstance(a, int) and isinstance(b, int):
            return a == b
        if a is b or (isinstance(a, PrimExpr) and isinstance(b, PrimExpr) and a.same_as(b)):
            return True
        return self.decide(ex.equal(a, b))

    def bounds(self, value: Extent) -> tuple[int, int | None]:
        """Least and greatest value that the facts allow; None for a missing maximum."""
        value = ex.plain(value)
        if isinstance(value, int):
            return value, value
        bound = self.analyzer.const_int_bound(value)
        return int(bound.min_value), None if bound.max_value >= UNBOUNDED else int(bound.max_value)


def _range(low: int, high: int) -> tvm.ir.Range:
    """low to high, both included."""
    return tvm.ir.Range(tirx.IntImm("int64", low), tirx.IntImm("int64", high + 1))
