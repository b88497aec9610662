"""Counts that depend on dims, as polynomials with whole coefficients."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import tvm
from tvm.ir.prim import expr as prim

from compiler.tir.exprs import Expr, as_int

Monomial = tuple[tuple[str, int], ...]
"""Atoms with their powers, by name; an atom is a dim, or the text of what is no polynomial."""


class UnknownExtent(Exception):
    """An extent that no expression of dims gives."""


@dataclass(frozen=True)
class Polynomial:
    """A sum of monomials, each with a coefficient that is not 0."""

    terms: Mapping[Monomial, int]

    @classmethod
    def constant(cls, value: int) -> "Polynomial":
        """A number."""
        return cls({(): value} if value else {})

    @classmethod
    def atom(cls, text: str) -> "Polynomial":
        """A dim, or any expression of dims in the words of `relaxd.contract.dims.axes`."""
        return cls({((text, 1),): 1})

    @property
    def value(self) -> int | None:
        """The number, if it depends on no dim."""
        return None if any(self.terms) else self.terms.get((), 0)

    def __add__(self, other: "Polynomial") -> "Polynomial":
        return _summed([*self.terms.items(), *other.terms.items()])

    def __neg__(self) -> "Polynomial":
        return Polynomial({monomial: -factor for monomial, factor in self.terms.items()})

    def __mul__(self, other: "Polynomial | int") -> "Polynomial":
        right = Polynomial.constant(other) if isinstance(other, int) else other
        return _summed(
            (_multiply(one, two), left * factor)
            for one, left in self.terms.items()
            for two, factor in right.terms.items()
        )

    def __str__(self) -> str:
        """The text of an axis expression, the highest powers first."""
        ordered = sorted(self.terms.items(), key=lambda term: (-_degree(term[0]), term[0]))
        return " + ".join(_term(monomial, factor) for monomial, factor in ordered) or "0"

    def at_most(self, bound: "Polynomial") -> bool:
        """True if it is clear from the coefficients that this never exceeds `bound`, for dims of at
        least 1; False where it is not clear.
        """
        room = dict(bound.terms)
        if any(factor < 0 for factor in room.values()):
            return False
        for monomial, factor in self.terms.items():
            for above in sorted(room, key=_degree):
                if _divides(monomial, above):
                    taken = min(max(factor, 0), room[above])
                    factor, room[above] = factor - taken, room[above] - taken
            if factor > 0:
                return False
        return True


ZERO, UNIT = Polynomial.constant(0), Polynomial.constant(1)


def total(parts: Iterable[Polynomial]) -> Polynomial:
    """The sum of the parts."""
    return _summed(term for part in parts for term in part.terms.items())


def multiply_all(parts: Iterable[Polynomial]) -> Polynomial:
    """The product of the parts."""
    return reduce(lambda one, other: one * other, parts, UNIT)


def least(lhs: Polynomial, rhs: Polynomial) -> Polynomial:
    """The smaller of two."""
    if lhs.at_most(rhs):
        return lhs
    return rhs if rhs.at_most(lhs) else _choice("min", lhs, rhs)


def polynomial_of(extent: Expr, values: Mapping[Any, Polynomial]) -> Polynomial:
    """The extent, given those of its variables; raises UnknownExtent for a variable without one, or
    an operation that axis expressions do not have.
    """
    known = as_int(extent)
    if known is not None:
        return Polynomial.constant(known)
    if isinstance(extent, tvm.ir.Var):
        if extent not in values:
            raise UnknownExtent(extent.name)
        return values[extent]
    if isinstance(extent, prim.Cast):
        return polynomial_of(extent.value, values)
    if type(extent) not in _OPERATIONS:
        raise UnknownExtent(type(extent).__name__)
    left, right = (polynomial_of(part, values) for part in (extent.a, extent.b))
    return _OPERATIONS[type(extent)](left, right)


def _divided(left: Polynomial, right: Polynomial) -> Polynomial:
    dividend, divisor = left.value, right.value
    if divisor and dividend is not None:
        return Polynomial.constant(dividend // divisor)
    if divisor and all(factor % divisor == 0 for factor in left.terms.values()):
        return Polynomial({monomial: f // divisor for monomial, f in left.terms.items()})
    return Polynomial.atom(f"({_operand(left)} // {_operand(right)})")


def _rest(left: Polynomial, right: Polynomial) -> Polynomial:
    dividend, divisor = left.value, right.value
    if divisor and dividend is not None:
        return Polynomial.constant(dividend % divisor)
    return Polynomial.atom(f"({_operand(left)} % {_operand(right)})")


def _operand(count: Polynomial) -> str:
    text = str(count)
    return text if text.isalnum() else f"({text})"


def _choice(name: str, lhs: Polynomial, rhs: Polynomial) -> Polynomial:
    return Polynomial.atom(f"{name}({lhs}, {rhs})")


_OPERATIONS: Mapping[type, Callable[[Polynomial, Polynomial], Polynomial]] = {
    prim.Add: lambda left, right: left + right,
    prim.Sub: lambda left, right: left + -right,
    prim.Mul: lambda left, right: left * right,
    # Extents are not negative, where all roundings are equal.
    prim.Div: _divided,
    prim.FloorDiv: _divided,
    prim.Mod: _rest,
    prim.FloorMod: _rest,
    prim.Min: least,
    prim.Max: lambda left, right: _choice("max", left, right),
}


def _summed(terms: Iterable[tuple[Monomial, int]]) -> Polynomial:
    factors: dict[Monomial, int] = {}
    for monomial, factor in terms:
        factors[monomial] = factors.get(monomial, 0) + factor
    return Polynomial({monomial: factor for monomial, factor in factors.items() if factor})


def _multiply(lhs: Monomial, rhs: Monomial) -> Monomial:
    powers = dict(lhs)
    for atom, power in rhs:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items()))


def _divides(lhs: Monomial, rhs: Monomial) -> bool:
    powers = dict(rhs)
    return all(power <= powers.get(atom, 0) for atom, power in lhs)


def _degree(monomial: Monomial) -> int:
    return sum(power for _, power in monomial)


def _term(monomial: Monomial, factor: int) -> str:
    parts = [atom for atom, power in monomial for _ in range(power)]
    return "*".join(parts if parts and factor == 1 else [str(factor), *parts])
