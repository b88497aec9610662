"""Symbolic sizes as a `.pt2` file writes them, in sympy's words: read by a grammar of their own,
never evaluated.

`Add(Symbol('s27', positive=True, integer=True), Integer(5))` becomes `s27 + 5`.
"""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from typing import Any

from compiler.errors import LoadError
from relaxd.contract.dims.axes import Axis
from relaxd.errors import DeclarationError

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_LONGEST = 20_000
_FOLDED = {"Add": "+", "Mul": "*"}
_PAIRS = {"FloorDiv": "//", "CleanDiv": "//", "PythonMod": "%", "Mod": "%"}
_EXTREMES = {"Max": "max", "Min": "min"}


@lru_cache(maxsize=65536)
def parse_size(text: str) -> Axis:
    """A size as an axis of dims that are called as torch calls the symbols; raises LoadError."""
    if len(text) > _LONGEST:
        raise _failure(text)
    try:
        return Axis(_write(ast.parse(text, mode="eval").body, text))
    except (SyntaxError, ValueError, RecursionError, MemoryError, DeclarationError) as error:
        raise _failure(text) from error


def _write(node: ast.expr, text: str) -> str:
    match node:
        case ast.Constant(value=int(number)) if type(number) is int:
            return str(number)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(number))):
            return f"(-{number})"
        case ast.Name(id=name) if _NAME.fullmatch(name):
            return name
        case ast.Call(func=ast.Name(id="Symbol"), args=[ast.Constant(value=str(name))]):
            if _NAME.fullmatch(name):
                return name
        case ast.Call(func=ast.Name(id="Integer"), args=[number], keywords=[]):
            return _write(number, text)
        case ast.Call(func=ast.Name(id="Pow"), args=[base, exponent], keywords=[]):
            return _power(_write(base, text), _write(exponent, text), text)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
            parts = [_write(arg, text) for arg in args]
            if name in _FOLDED and parts:
                return f"({f' {_FOLDED[name]} '.join(parts)})"
            if name in _PAIRS and len(parts) == 2:
                return f"({parts[0]} {_PAIRS[name]} {parts[1]})"
            if name in _EXTREMES and len(parts) > 1:
                return f"{_EXTREMES[name]}({', '.join(parts)})"
    raise _failure(text)


def _power(base: str, exponent: str, text: str) -> str:
    if not exponent.isdigit() or not 0 < int(exponent) <= 8:
        raise _failure(text)
    return f"({' * '.join([base] * int(exponent))})"


def _failure(text: str) -> LoadError:
    return LoadError(
        f"a size of the program is {text[:80]!r}, which is not supported",
        reason="pt2_size",
        field="model",
        hint="sizes are made of dims and integers with +, *, //, %, min and max",
    )


_WORDS = frozenset({
    "Symbol", "Integer", "Add", "Mul", "Pow", "Max", "Min", "Rational", "Float", "FloorDiv",
    "ModularIndexing", "Where", "PythonMod", "Mod", "CleanDiv", "CeilToInt", "FloorToInt",
    "CeilDiv", "LShift", "RShift", "PowByNatural", "FloatPow", "FloatTrueDiv", "IntTrueDiv",
    "IsNonOverlappingAndDenseIndicator", "TruncToFloat", "TruncToInt", "RoundToInt",
    "RoundDecimal", "ToFloat", "Identity", "Eq", "Ne", "Equality", "Unequality", "LessThan",
    "GreaterThan", "StrictLessThan", "StrictGreaterThan", "And", "Or", "Not", "Piecewise",
    "ExprCondPair", "true", "false", "oo", "int_oo", "nan",
})  # fmt: skip
_SYMBOL = re.compile(r"[a-z]+\d+")
_SIGNS = (ast.Expression, ast.Constant, ast.UnaryOp, ast.USub, ast.Load, ast.keyword, ast.Tuple)
_ARITHMETIC = (ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)


def check_expressions(document: Any) -> None:
    """Raise LoadError if an expression anywhere in the file is more than sympy's own calls on
    symbols and numbers: torch, which verification runs, evaluates these texts.
    """
    waiting = [document]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            if "expr_str" in item:
                _check_text(item["expr_str"])
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item


@lru_cache(maxsize=65536)
def _check_text(text: str) -> None:
    try:
        if len(text) > _LONGEST:
            raise _failure(text)
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _failure(text) from error
    for node in ast.walk(tree):
        called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        named = isinstance(node, ast.Name) and (node.id in _WORDS or _SYMBOL.fullmatch(node.id))
        literal = not isinstance(node, ast.Constant) or (
            not isinstance(node.value, str) or _NAME.fullmatch(node.value)
        )
        if not literal or not (called or named or isinstance(node, _SIGNS + _ARITHMETIC)):
            raise _failure(text)
