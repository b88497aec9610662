"""Symbolic sizes as a `.pt2` file writes them, in sympy's words: read by a grammar of their own,
never evaluated.

`Add(Symbol('s27', positive=True, integer=True), Integer(5))` becomes `s27 + 5`.
"""

import ast
import re
from functools import lru_cache

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
