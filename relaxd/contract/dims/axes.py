"""Axis expressions: integer arithmetic over dims, as in `2*seq`, `past+seq` or `2*"seq-len"`.

Names of dims that are no plain identifiers stand in double quotes (`relaxd.contract.dims.names`).
"""

import ast
import copy
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from relaxd.contract.dims.names import QUOTED, is_plain, objection_to, quote_name, unquote_name
from relaxd.errors import DeclarationError

_SIZE = re.compile(r"0|[1-9][0-9]{0,18}")
_FOREIGN = re.compile(r"[^A-Za-z0-9_+\-*/%(), \t\r\n]")
"""What no axis has outside of quotes: Python would read more than arithmetic."""

_STAND_IN = "\N{GREEK SMALL LETTER LAMDA}"
"""Begins what stands for a quoted name where Python reads an expression: no name without quotes
has this letter.
"""

_OPERATORS: dict[type[ast.operator], tuple[str, Callable[[int, int], int]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
}
_FUNCTIONS: dict[str, Callable[..., int]] = {"min": min, "max": max}


_LONGEST_TEXT = 2000


@lru_cache(maxsize=4096)
def _parse(text: str) -> ast.expr:
    try:
        if len(text) > _LONGEST_TEXT:
            raise _malformed(text[:40] + "...")
        tree = _read(text)
        if not _has_dims(tree) and _evaluate(tree, {}) < 0:
            raise _malformed(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError, ZeroDivisionError) as error:
        raise _malformed(text) from error
    return tree


def _read(text: str) -> ast.expr:
    """The tree of a text, where a quoted name is an `ast.Name` like any other; raises SyntaxError
    or ValueError.
    """
    if _FOREIGN.search(QUOTED.sub("", text)):
        raise ValueError("no arithmetic")
    names: list[str] = []

    def stand_in(match: re.Match[str]) -> str:
        names.append(_checked(unquote_name(match[0])))
        return f" {_STAND_IN}{len(names) - 1} "

    tree = ast.parse(QUOTED.sub(stand_in, text).strip(), mode="eval").body
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and not ast.unparse(node.func).isascii():
            raise ValueError("no function")
        if isinstance(node, ast.Name) and node.id.startswith(_STAND_IN):
            node.id = names[int(node.id.removeprefix(_STAND_IN))]
    return tree


def _checked(name: str) -> str:
    objection = objection_to(name)
    if objection:
        raise DeclarationError(
            f"axis {quote_name(name)[:40]!r}: {objection}",
            field="axis",
            hint="give the dim another name",
        )
    return name


def _write(tree: ast.expr) -> str:
    """The canonical text of an expression."""
    if not all(map(is_plain, _names(tree))):
        tree = copy.deepcopy(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                node.id = quote_name(node.id)
    return ast.unparse(tree)


def _has_dims(node: ast.expr) -> bool:
    """True if the expression depends on dims; raises ValueError where it is none of this module's
    or divides by a constant 0.
    """
    match node:
        case ast.Name():
            return True
        case ast.Constant(value=value) if type(value) is int:
            return False
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            divisor = _has_dims(right)
            if isinstance(op, (ast.FloorDiv, ast.Mod)) and not divisor and not _evaluate(right, {}):
                raise ValueError("a division by 0")
            return _has_dims(left) or divisor
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _has_dims(operand)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            if len(args) >= 2:
                return True in [_has_dims(arg) for arg in args]  # every one is checked
    raise ValueError(f"no part of an axis: {type(node).__name__}")


def _names(tree: ast.expr) -> frozenset[str]:
    """The names of dims, without the names of called functions."""
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return frozenset(
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in called
    )


def _malformed(text: str) -> DeclarationError:
    return DeclarationError(
        f"axis {text!r} is not an integer expression of dims",
        field="axis",
        hint="use whole numbers, dim names, + - * // % and min/max, as in 2*seq or past+seq; a "
        'name with other characters stands in double quotes, as in 2*"seq-len"',
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


def _line(node: ast.expr, name: str, bindings: Mapping[str, int]) -> tuple[int, int] | None:
    """Value at 0 and slope of the expression as a function of its one unbound dim; None if it is
    not linear.
    """
    match node:
        case ast.Name(id=found) if found == name:
            return 0, 1
        case ast.UnaryOp(operand=operand):
            line = _line(operand, name, bindings)
            return None if line is None else (-line[0], -line[1])
        case ast.BinOp(left=left, op=op, right=right) if name in _names(node):
            left_line, right_line = _line(left, name, bindings), _line(right, name, bindings)
            return (
                None
                if left_line is None or right_line is None
                else _combine(op, left_line, right_line)
            )
    return None if name in _names(node) else (_evaluate(node, bindings), 0)


def _combine(
    op: ast.operator, lhs: tuple[int, int], rhs: tuple[int, int]
) -> tuple[int, int] | None:
    match op:
        case ast.Add():
            return lhs[0] + rhs[0], lhs[1] + rhs[1]
        case ast.Sub():
            return lhs[0] - rhs[0], lhs[1] - rhs[1]
        case ast.Mult() if not (lhs[1] and rhs[1]):
            return lhs[0] * rhs[0], lhs[0] * rhs[1] + lhs[1] * rhs[0]
    return None


def _is_bare(text: str) -> bool:
    """True if it is a dim or a size and nothing else, as most axes are: parsing takes long."""
    return (is_plain(text) or _SIZE.fullmatch(text) is not None) and len(text) <= _LONGEST_TEXT


@lru_cache(maxsize=4096)
def _dims(text: str) -> frozenset[str]:
    if _SIZE.fullmatch(text):
        return frozenset()
    return frozenset((text,)) if is_plain(text) else _names(_parse(text))


@dataclass(frozen=True)
class Axis:
    """One axis of a tensor: a fixed size or an expression of dims, e.g. `Axis("2*seq")`; raises
    DeclarationError. `text` has quotes around names that are not plain.
    """

    text: str

    def __post_init__(self) -> None:
        if isinstance(self.text, str) and _is_bare(self.text):
            return
        try:
            object.__setattr__(self, "text", _write(_parse(str(self.text))))
        except RecursionError as error:
            raise _malformed(self.text) from error

    @classmethod
    def of_dim(cls, name: str) -> "Axis":
        """The axis that is the dim of this name and nothing else."""
        return cls(quote_name(name))

    @classmethod
    def parse(cls, text: str) -> "Axis":
        """From the text of an axis, which is checked, but not brought into its form once more: to
        write an expression takes longer than to read it.
        """
        if not _is_bare(text):
            _parse(text)
        axis = object.__new__(cls)
        object.__setattr__(axis, "text", text)
        return axis

    @cached_property
    def tree(self) -> ast.expr:
        """The parsed expression: names, whole numbers, negations, binary operations, calls of min
        and max.
        """
        return _parse(self.text)

    @property
    def dims(self) -> frozenset[str]:
        """The names of the dims that the axis depends on."""
        return _dims(self.text)

    @property
    def size(self) -> int | None:
        """The size if it is fixed, else None."""
        return None if self.dims else self.evaluate({})

    @property
    def symbol(self) -> str | None:
        """The dim's name if the axis is a bare dim, else None."""
        if is_plain(self.text):
            return self.text
        # Quotes hold a name, or begin an expression.
        tree = self.tree if self.text.startswith('"') else None
        return tree.id if isinstance(tree, ast.Name) else None

    def evaluate(self, bindings: Mapping[str, int]) -> int:
        """The size when every dim is bound; KeyError names an unbound dim, ZeroDivisionError is
        raised if a divisor is 0.
        """
        if _SIZE.fullmatch(self.text):
            return int(self.text)
        return _evaluate(self.tree, bindings)

    def solve(self, size: int, bindings: Mapping[str, int]) -> tuple[str, int] | None:
        """Name and value of the one unbound dim, if the axis is linear in it and `size` has an
        exact solution, else None.
        """
        unknown = self.dims - bindings.keys()
        if len(unknown) != 1:
            return None
        (name,) = unknown
        if name == self.symbol:
            return name, size
        try:
            line = _line(self.tree, name, bindings)
        except ZeroDivisionError:
            return None
        if line is None or line[1] == 0:
            return None
        value, rest = divmod(size - line[0], line[1])
        return None if rest else (name, value)

    def __str__(self) -> str:
        return self.text


def axes_of(values: Iterable[object], field: str) -> tuple[Axis, ...]:
    """Parse axes from texts and sizes; raises DeclarationError naming `field`."""
    try:
        return tuple(value if isinstance(value, Axis) else Axis(str(value)) for value in values)
    except DeclarationError as error:
        raise DeclarationError(error.message, field=field, hint=error.hint) from error
