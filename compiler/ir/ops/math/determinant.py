"""Determinants by elimination with partial pivoting."""

from typing import Any

from tvm import tirx

from compiler.ir.graph import loop_programs
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex


def determinant(b: Builder, x: Value) -> Value:
    """The determinant of each square matrix in the last two axes, worked out in float64."""
    n = b.same(
        x.shape[-1], x.shape[-2], "Det: the last two axes differ, so the matrices are not square"
    )
    batch = b.facts.simplify(ex.prod(x.shape[:-2]))
    matrices = layout.reshape(b, ew.cast(b, x, "float64"), [batch, n, n])

    def body(inputs: list[Any], outputs: list[Any]) -> None:
        result, work = outputs

        def eliminate(m: Any) -> None:
            with loop_programs.serial(n) as i, loop_programs.serial(n) as j:
                work[m, i, j] = inputs[0][m, i, j]
            total = loop_programs.cell("float64", 1.0)
            with loop_programs.serial(n) as k:
                _pivot(work, total, m, k, n)
                with (
                    loop_programs.when(tirx.NE(work[m, k, k], tirx.const(0.0, "float64"))),
                    loop_programs.serial(n, k + 1) as i,
                ):
                    _eliminate(work, m, k, i, n)
                total[0] = total[0] * work[m, k, k]
            result[m] = total[0]

        loop_programs.spread(batch, eliminate, ex.mul(n, ex.mul(n, n)))

    determinants, _ = loop_programs.program(
        b, body, [((batch,), "float64"), ((batch, n, n), "float64")], matrices, name="determinant"
    )
    return ew.cast(b, layout.reshape(b, determinants, x.shape[:-2]), x.dtype)


def _pivot(work: Any, total: Any, m: Any, k: Any, n: Any) -> None:
    """Swap row k with the one below it whose element in column k is the greatest; a swap changes
    the sign.
    """
    best = loop_programs.cell(start=k)
    with (
        loop_programs.serial(n, k + 1) as i,
        loop_programs.when(tirx.abs(work[m, i, k]) > tirx.abs(work[m, best[0], k])),
    ):
        best[0] = i
    with loop_programs.when(tirx.NE(best[0], k)):
        total[0] = -total[0]
        with loop_programs.serial(n) as j:
            swapped = loop_programs.cell("float64", work[m, k, j])
            work[m, k, j] = work[m, best[0], j]
            work[m, best[0], j] = swapped[0]


def _eliminate(work: Any, m: Any, k: Any, i: Any, n: Any) -> None:
    factor = loop_programs.cell("float64", work[m, i, k] / work[m, k, k])
    with loop_programs.serial(n, k) as j:
        work[m, i, j] = work[m, i, j] - factor[0] * work[m, k, j]
