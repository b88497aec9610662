"""Axes written as expressions of other languages, and names written as their identifiers."""

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from relaxd.contract.dims.axes import Axis
from relaxd.contract.dims.dims import Dim
from relaxd.contract.dims.tensors import TensorSpec


@dataclass(frozen=True)
class AxisForms:
    """How a language writes what axes are made of."""

    divide: str
    remainder: str
    minimum: str
    maximum: str
    number: Callable[[int], str] = str
    add: str = "({} + {})"
    subtract: str = "({} - {})"
    multiply: str = "({} * {})"

    def operator(self, node: ast.operator) -> str:
        """The form of an operation on two texts."""
        plain = {ast.Add: self.add, ast.Sub: self.subtract, ast.Mult: self.multiply}
        return plain.get(type(node)) or (
            self.divide if isinstance(node, ast.FloorDiv) else self.remainder
        )


def write_axis(axis: Axis, names: Mapping[str, str], forms: AxisForms) -> str:
    """An axis in a language, given its text for every dim."""
    return _write(axis.tree, names, forms)


def _write(node: ast.expr, names: Mapping[str, str], forms: AxisForms) -> str:
    match node:
        case ast.Constant(value=int(value)):
            return forms.number(value)
        case ast.Name(id=name):
            return names[name]
        case ast.UnaryOp(operand=operand):
            return f"(-{_write(operand, names, forms)})"
        case ast.BinOp(left=left, op=op, right=right):
            texts = (_write(side, names, forms) for side in (left, right))
            return forms.operator(op).format(*texts)
        case ast.Call(func=ast.Name(id=name), args=[first, *rest]):
            text = _write(first, names, forms)
            form = forms.minimum if name == "min" else forms.maximum
            for other in rest:
                text = form.format(text, _write(other, names, forms))
            return text
    raise AssertionError(ast.dump(node))


def bound_dims(inputs: Iterable[TensorSpec], dims: Iterable[Dim]) -> tuple[Dim, ...]:
    """The dims that a call binds: those that an axis of an input names, in the order of names, as
    in manifest.json.
    """
    named = {name for spec in inputs for axis in spec.shape for name in axis.dims}
    bound = [dim for dim in dims if dim.name in named]
    return tuple(sorted(bound, key=lambda dim: dim.name))


def identifier(text: str) -> str:
    """The text with everything else than letters, digits and underscores replaced."""
    return re.sub(r"\W", "_", text, flags=re.ASCII)
