"""Orthogonal polynomials by their recurrences, of degrees that only run time knows."""

from collections.abc import Callable
from typing import Any

from tvm import tirx

from compiler.ir.aten.node import Node
from compiler.ir.aten.operands import pair
from compiler.ir.aten.operators.bessel import constant
from compiler.ir.aten.registry import op
from compiler.ir.graph import loop_programs
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.ops.math.loops import by_loops
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.shapes import extents as ex

Step = Callable[[Any, Any, Any, Any], Any]
"""The next polynomial, of x, the degree k reached, and those of degrees k and k - 1."""
_MOST = 1 << 20
"""Degrees above this are computed as this one."""


def _register(name: str, first: Callable[[Any], Any], step: Step, shifted: bool = False) -> None:
    @op(f"special_{name}")
    def handler(b: Builder, node: Node) -> Value:
        x, degree = pair(b, node, "x", "n", floating=True)

        def element(point: Any, n: Any) -> Any:
            point = point * constant(2) - constant(1) if shifted else point
            return _climb(point, n, first, step)

        return ew.cast(b, by_loops(b, element, (x, degree), "float64", work=16, name=name), x.dtype)

    handler.__doc__ = f"{name.replace('_', ' ')} of degree n, 0 for negative ones."


def _climb(x: Any, degree: Any, first: Callable[[Any], Any], step: Step) -> Any:
    """The polynomial of a degree, from those of degrees 0 and 1 upwards."""
    bounded = tirx.max(constant(-1), tirx.min(degree, constant(_MOST)))
    n = tirx.Select(tirx.isnan(degree), constant(-1), bounded).astype("int64")
    lower, upper = loop_programs.cell("float64", 1.0), loop_programs.cell("float64", first(x))
    with loop_programs.serial(tirx.max(n - ex.prim(1), ex.prim(0))) as k:
        following = loop_programs.cell(
            "float64", step(x, (k + ex.prim(1)).astype("float64"), upper[0], lower[0])
        )
        lower[0] = upper[0]
        upper[0] = following[0]
    value = tirx.Select(tirx.EQ(n, ex.prim(0)), constant(1), upper[0])
    return tirx.Select(n < ex.prim(0), constant(0), value)


def _chebyshev(x: Any, k: Any, upper: Any, lower: Any) -> Any:
    return constant(2) * x * upper - lower


for _kind, _first in (
    ("t", lambda x: x),
    ("u", lambda x: constant(2) * x),
    ("v", lambda x: constant(2) * x - constant(1)),
    ("w", lambda x: constant(2) * x + constant(1)),
):
    _register(f"chebyshev_polynomial_{_kind}", _first, _chebyshev)
    _register(f"shifted_chebyshev_polynomial_{_kind}", _first, _chebyshev, shifted=True)
_register(
    "hermite_polynomial_h",
    lambda x: constant(2) * x,
    lambda x, k, upper, lower: constant(2) * (x * upper - k * lower),
)
_register(
    "hermite_polynomial_he",
    lambda x: x,
    lambda x, k, upper, lower: x * upper - k * lower,
)
_register(
    "laguerre_polynomial_l",
    lambda x: constant(1) - x,
    lambda x, k, upper, lower: (
        ((constant(2) * k + constant(1) - x) * upper - k * lower) / (k + constant(1))
    ),
)
_register(
    "legendre_polynomial_p",
    lambda x: x,
    lambda x, k, upper, lower: (
        ((constant(2) * k + constant(1)) * x * upper - k * lower) / (k + constant(1))
    ),
)
