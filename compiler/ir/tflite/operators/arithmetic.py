"""Operators of two tensors, element by element."""

import numpy as np

from compiler.ir.tflite.node import Node
from compiler.ir.tflite.registry import op
from compiler.ir.tflite.rescaling import activation_limits, centre, limits_of, requantize

_ADD_SHIFT, _COMPARE_SHIFT = 20, 8
"""Bits by which quantized operands are shifted left before their scales are brought together."""


def _rank(node: Node) -> int:
    return max(node.rank(0), node.rank(1))


def _raised(node: Node, index: int, bits: int) -> str:
    return str(node.put("Mul", centre(node, index), node.const(1 << bits, "int32")))


def _sum(node: Node, operator: str) -> str:
    """Add operands at twice the greater of their scales, then bring the sum to the output's."""
    node.require_bytes(0, 1)
    scales = [np.float64(node.scalar_grid(node.tensor(index))[0]) for index in (0, 1)]
    common = 2 * max(scales)
    sides = [
        requantize(node, _raised(node, index, _ADD_SHIFT), scale / common, _rank(node))
        for index, scale in enumerate(scales)
    ]
    out, _ = node.scalar_grid(node.output)
    factor = common / (np.float64(1 << _ADD_SHIFT) * np.float64(out))
    limits = activation_limits(node, node.output, node.option("activation"))
    total = node.put(operator, *sides)
    return requantize(node, total, factor, _rank(node), output=node.output, limits=limits)


@op("ADD", "SUB")
def add(node: Node) -> str:
    """Sums and differences."""
    operator = node.operator.name.title()
    if node.is_quantized():
        return _sum(node, operator)
    return _activate(node, node.put(operator, node.x(0), node.x(1)))


@op("MUL")
def mul(node: Node) -> str:
    """Products."""
    if not node.is_quantized():
        return _activate(node, node.put("Mul", node.x(0), node.x(1)))
    node.require_bytes(0, 1)
    left, right = (node.scalar_grid(node.tensor(index))[0] for index in (0, 1))
    factor = left * right / node.scalar_grid(node.output)[0]
    limits = activation_limits(node, node.output, node.option("activation"))
    total = node.put("Mul", centre(node, 0), centre(node, 1))
    return requantize(node, total, factor, _rank(node), output=node.output, limits=limits)


@op("DIV")
def div(node: Node) -> str:
    """Quotients, of integers towards zero."""
    _require_plain(node)
    return _activate(node, node.put("Div", node.x(0), node.x(1)))


def _activate(node: Node, y: str) -> str:
    dtype = node.tensor(0).dtype
    if node.option("activation") == 0 or dtype.startswith("float"):
        return node.activate(y)
    if node.option("activation") == 1:
        return node.clip(y, 0, limits_of(dtype)[1], dtype)
    return node.activate(y, dtype)


def _require_plain(node: Node) -> None:
    """Fail for quantized operands."""
    if node.is_quantized():
        node.fail(
            f"{node.operator.name} of quantized integers is not supported",
            reason="unsupported_dtype",
            hint="leave it in float when the model is quantized",
        )


@op("MAXIMUM", "MINIMUM")
def extreme(node: Node) -> str:
    """The greater or the lesser element; quantized ones have one scale."""
    if node.is_quantized():
        grids = {node.scalar_grid(tensor) for tensor in (*map(node.tensor, (0, 1)), node.output)}
        if len(grids) > 1:
            node.fail("its inputs and its output have different scales", reason="scales")
    return str(node.put(node.operator.name[:3].title(), node.x(0), node.x(1)))


@op("SQUARED_DIFFERENCE")
def squared_difference(node: Node) -> str:
    """Squares of differences."""
    _require_plain(node)
    difference = node.put("Sub", node.x(0), node.x(1))
    return str(node.put("Mul", difference, difference))


@op("POW")
def power(node: Node) -> str:
    """Powers."""
    _require_plain(node)
    return str(node.put("Pow", node.x(0), node.x(1)))


@op("ATAN2")
def atan2(node: Node) -> str:
    """The angle of (x, y), in the quadrant that their signs say."""
    _require_plain(node)
    dtype = node.tensor(0).dtype
    y, x = node.x(0), node.x(1)
    zero, pi = node.const(0, dtype), node.const(np.pi, dtype)
    base = node.put("Atan", node.put("Div", y, x))
    turn = node.put("Where", node.put("Less", y, zero), node.put("Neg", pi), pi)
    left = node.put("Where", node.put("Less", x, zero), node.put("Add", base, turn), base)
    nothing = node.put("And", node.put("Equal", x, zero), node.put("Equal", y, zero))
    return str(node.put("Where", nothing, zero, left))


@op("FLOOR_DIV")
def floor_div(node: Node) -> str:
    """Quotients rounded down."""
    _require_plain(node)
    x, y, dtype = node.x(0), node.x(1), node.tensor(0).dtype
    if dtype.startswith("float"):
        return str(node.put("Floor", node.put("Div", x, y)))
    return str(node.put("Div", node.put("Sub", x, node.put("Mod", x, y)), y))


@op("FLOOR_MOD")
def floor_mod(node: Node) -> str:
    """Remainders with the divisor's sign."""
    _require_plain(node)
    x, y, dtype = node.x(0), node.x(1), node.tensor(0).dtype
    if not dtype.startswith("float"):
        return str(node.put("Mod", x, y))
    zero = node.const(0, dtype)
    rest = node.put("Mod", x, y, fmod=1)
    signs = node.put("Xor", node.put("Less", rest, zero), node.put("Less", y, zero))
    is_rest = node.put("Not", node.put("Equal", rest, zero))
    moved = node.put("And", signs, is_rest)
    return str(node.put("Where", moved, node.put("Add", rest, y), rest))


@op("ADD_N")
def add_n(node: Node) -> str:
    """The sum of all inputs."""
    _require_plain(node)
    total = node.x(0)
    for index in range(1, len(node.inputs)):
        total = node.put("Add", total, node.x(index))
    return total


_COMPARISONS = {
    "EQUAL": "Equal", "LESS": "Less", "GREATER": "Greater", "LESS_EQUAL": "LessOrEqual",
    "GREATER_EQUAL": "GreaterOrEqual", "NOT_EQUAL": "Equal",
}  # fmt: skip


@op(*_COMPARISONS)
def compare(node: Node) -> str:
    """Comparisons; quantized operands are brought to one scale."""
    sides = [node.x(0), node.x(1)]
    if node.is_quantized():
        node.require_bytes(0, 1)
        sides = [
            requantize(
                node,
                _raised(node, index, _COMPARE_SHIFT),
                node.scalar_grid(node.tensor(index))[0],
                _rank(node),
            )
            for index in (0, 1)
        ]
    result = node.put(_COMPARISONS[node.operator.name], *sides)
    return str(node.put("Not", result)) if node.operator.name == "NOT_EQUAL" else result


@op("LOGICAL_AND", "LOGICAL_OR")
def logical(node: Node) -> str:
    """Both, or either."""
    name = node.operator.name.removeprefix("LOGICAL_").title()
    return str(node.put(name, node.x(0), node.x(1)))


@op("LOGICAL_NOT")
def logical_not(node: Node) -> str:
    """The opposite."""
    return str(node.put("Not", node.x()))


@op("BITWISE_XOR")
def bitwise_xor(node: Node) -> str:
    """Bits that differ."""
    return str(node.put("BitwiseXor", node.x(0), node.x(1)))


@op("SELECT", "SELECT_V2", "WHERE")
def select(node: Node) -> "str | list[str]":
    """Elements of the second input where the first holds, else of the third; the positions that
    hold where there are no others.
    """
    if node.operator.name == "WHERE":
        positions = node.put("NonZero", node.x())
        return node.transpose(positions, 1, 0)
    condition = node.x(0)
    if node.operator.name == "SELECT" and node.rank(0) == 1 < node.rank(1):
        shape = [-1, *[1] * (node.rank(1) - 1)]
        condition = node.put("Reshape", condition, node.const(shape, "int64"))
    return str(node.put("Where", condition, node.x(1), node.x(2)))
