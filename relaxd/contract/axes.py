"""Axis expressions: integer arithmetic over dims, as in `2*seq` or `past+seq`."""

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from relaxd.errors import DeclarationError

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_OPERATORS: dict[type[ast.operator], tuple[str, Callable[[int, int], int]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
}
_FUNCTIONS: dict[str, Callable[..., int]] = {"min": min, "max": max}


@lru_cache(maxsize=4096)
def _parse(text: str) -> ast.expr:
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise _malformed(text) from error
    for node in ast.walk(tree):
        known = (
            isinstance(node, (ast.BinOp, ast.operator, ast.UnaryOp, ast.USub, ast.Name, ast.Load))
            or (isinstance(node, ast.Constant) and type(node.value) is int)
            or (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS and len(node.args) >= 2 and not node.keywords)
        )
        if not known or (isinstance(node, ast.operator) and type(node) not in _OPERATORS):
            raise _malformed(text)
    return tree


def _malformed(text: str) -> DeclarationError:
    return DeclarationError(
        f"axis {text!r} is not an integer expression of dims",
        field="axis",
        hint="use integers, dim names, + - * // % and min/max, as in 2*seq or past+seq",
    )


def _evaluate(node: ast.expr, bindings: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name):
            return bindings[name]
        case ast.UnaryOp(operand=operand):
            return -_evaluate(operand, bindings)
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)][1](_evaluate(left, bindings), _evaluate(right, bindings))
        case ast.Call(func=ast.Name(id=name), args=args):
            return _FUNCTIONS[name](*(_evaluate(arg, bindings) for arg in args))
    raise AssertionError(ast.dump(node))


@dataclass(frozen=True)
class Axis:
    """One axis of a tensor: a fixed size or an expression of dims, e.g. `Axis("2*seq")`; raises DeclarationError."""

    text: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", ast.unparse(_parse(str(self.text))))

    @cached_property
    def dims(self) -> frozenset[str]:
        """The names of the dims that the axis depends on."""
        tree = _parse(self.text)
        return frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name)) - _FUNCTIONS.keys()

    @property
    def size(self) -> int | None:
        """The size if it is fixed, else None."""
        return None if self.dims else self.evaluate({})

    @property
    def symbol(self) -> str | None:
        """The dim's name if the axis is a bare dim, else None."""
        return self.text if IDENTIFIER.fullmatch(self.text) else None

    def evaluate(self, bindings: Mapping[str, int]) -> int:
        """The size once every dim is bound; KeyError names a dim that is not."""
        return _evaluate(_parse(self.text), bindings)

    def solve(self, size: int, bindings: Mapping[str, int]) -> tuple[str, int] | None:
        """The one unbound dim's value if the axis is linear in it and `size` has an exact solution, else None."""
        unknown = self.dims - bindings.keys()
        if len(unknown) != 1:
            return None
        (name,) = unknown
        try:
            at = [self.evaluate({**bindings, name: value}) for value in (0, 1, 2, 1009)]
        except ZeroDivisionError:
            return None
        slope = at[1] - at[0]
        if slope == 0 or at[2] != at[0] + 2 * slope or at[3] != at[0] + 1009 * slope:
            return None
        value, rest = divmod(size - at[0], slope)
        return None if rest else (name, value)

    def __str__(self) -> str:
        return self.text
