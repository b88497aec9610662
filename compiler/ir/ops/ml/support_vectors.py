"""Support vector machines: kernels, duels between classes, and probabilities from them."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np
from tvm import te, tirx

from compiler.ir.graph import loop_programs
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Tensor, Value
from compiler.ir.ops.math import linear
from compiler.ir.ops.ml.scores import logistic_of
from compiler.ir.ops.pointwise.programs import like, pointwise
from compiler.ir.shapes import extents as ex

Array: TypeAlias = np.ndarray[Any, Any]

ROUNDS = 100
"""Iterations of the probabilities at most, as in libsvm and ONNX Runtime."""
CLOSE = 0.005
"""An error over the number of classes at which they end."""
LEAST = 1e-7
"""No class beats another with less probability than that."""


class KernelKind(StrEnum):
    """By ONNX's names."""

    LINEAR = "LINEAR"
    POLY = "POLY"
    RBF = "RBF"
    SIGMOID = "SIGMOID"


@dataclass(frozen=True)
class Kernel:
    """x v, (gamma x v + offset)^degree, exp(-gamma |x - v|^2) or tanh(gamma x v + offset)."""

    kind: KernelKind
    gamma: float
    offset: float
    degree: float


def near(b: Builder, x: Value, vectors: Array, kernel: Kernel) -> Value:
    """The kernel of each row of x [n, features] with each support vector: [n, vectors]."""
    if kernel.kind is KernelKind.RBF:
        return _radial(b, x, vectors, kernel.gamma)
    dots = linear.matmul(b, x, Known.of(vectors.T.copy(), "float32"))
    if kernel.kind is KernelKind.LINEAR:
        return dots

    def scalar(value: Any) -> Any:
        scaled = like(value, kernel.gamma) * value + like(value, kernel.offset)
        return tirx.tanh(scaled) if kernel.kind is KernelKind.SIGMOID else _power(scaled, kernel)

    return pointwise(b, scalar, dots, name="kernel")


def _power(value: Any, kernel: Kernel) -> Any:
    """Whole powers by products: the logarithm of a negative number would make NaN of them."""
    if not float(kernel.degree).is_integer() or not 0 <= kernel.degree <= 16:
        return tirx.power(value, like(value, kernel.degree))
    result = like(value, 1)
    for _ in range(int(kernel.degree)):
        result = result * value
    return result


def _radial(b: Builder, x: Value, vectors: Array, gamma: float) -> Value:
    """From differences: |x|^2 - 2 x v + |v|^2 would lose the digits of near vectors."""
    count, features = vectors.shape

    def compute(rows: te.Tensor, others: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((ex.prim(0), ex.prim(features)), name="k")

        def distance(n: Any, v: Any) -> Any:
            step = rows(n, k) - others(v, k)
            return te.sum(step * step, axis=[k])

        shape = [ex.prim(extent) for extent in (x.shape[0], count)]
        return te.compute(shape, distance, name="distances")

    squares = b.te(compute, x, Known.of(vectors, "float32"), name="distances")
    return pointwise(b, lambda v: tirx.exp(like(v, -gamma) * v), squares, name="radial")


def duels(
    b: Builder, near: Value, weights: Array, offsets: Array, per_class: Array
) -> tuple[Tensor, Tensor]:
    """The score of each pair of classes, float32 [n, pairs], and how many each class wins, int32
    [n, classes]; a score above 0 is a win of the earlier class.

    weights: [(classes - 1) * vectors], row j - 1 of a class's vectors against class j behind it,
    row j against class j before it. Sums are in float64, as in libsvm.
    """
    rows, classes, total = near.shape[0], len(per_class), int(per_class.sum())
    starts = [int(start) for start in np.concatenate([[0], np.cumsum(per_class)])]
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    table = np.asarray(
        [
            number
            for i, j in pairs
            for own, other in ((i, j - 1), (j, i))
            for number in (starts[own], starts[own + 1], other * total)
        ],
        np.int32,
    )
    sides = np.asarray(pairs, np.int32).reshape(-1)

    def body(inputs: list[Any], outputs: list[Any]) -> None:
        close, scale, offset, bounds, side = inputs
        scores, votes = outputs

        def row(r: Any) -> None:
            with loop_programs.serial(classes) as c:
                votes[r, c] = tirx.const(0, "int32")
            with loop_programs.serial(len(pairs)) as p:
                total = loop_programs.cell("float64", 0.0)
                for part in (0, 3):
                    start, stop, base = (
                        bounds[p * ex.prim(6) + ex.prim(part + i)].astype("int64") for i in range(3)
                    )
                    with loop_programs.serial(stop, start) as v:
                        term = scale[base + v] * close[r, v]
                        total[0] = total[0] + term.astype("float64")
                total[0] = total[0] + offset[p].astype("float64")
                scores[r, p] = total[0].astype("float32")
                first, second = (side[p * ex.prim(2) + ex.prim(i)] for i in (0, 1))
                won = tirx.Select(total[0] > tirx.const(0.0, "float64"), first, second)
                winner = won.astype("int64")
                votes[r, winner] = votes[r, winner] + tirx.const(1, "int32")

        loop_programs.spread(rows, row, work=(classes - 1) * total * 2)

    forms = [((rows, len(pairs)), "float32"), ((rows, classes), "int32")]
    constants = [
        Known.of(weights, "float32"),
        Known.of(offsets, "float32"),
        Known.of(table),
        Known.of(sides),
    ]
    results = loop_programs.program(b, body, forms, near, *constants, name="duels")
    return results[0], results[1]


def probabilities(b: Builder, duels: Value, slopes: Array, offsets: Array, classes: int) -> Value:
    """float32 [n, classes] from the scores of pairs by Platt's logistic functions and the second
    method of Wu, Lin and Weng (2004), in libsvm's iteration.
    """
    rows, cells = duels.shape[0], classes * classes
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    cells_of_pairs = np.asarray([[i * classes + j, j * classes + i] for i, j in pairs], np.int32)

    def body(inputs: list[Any], outputs: list[Any]) -> None:
        scores, slope, offset, cell = inputs
        p, wins, q, qp = outputs

        def row(r: Any) -> None:
            with loop_programs.serial(len(pairs)) as k:
                fitted = scores[r, k] * slope[k] + offset[k]
                chance = tirx.const(1.0, "float32") - logistic_of(fitted)
                limit = tirx.const(np.float32(1 - LEAST), "float32")
                chance = tirx.min(tirx.max(chance, tirx.const(LEAST, "float32")), limit)
                first, second = (cell[k, ex.prim(i)].astype("int64") for i in (0, 1))
                wins[r, first] = chance
                wins[r, second] = tirx.const(1.0, "float32") - wins[r, first]
            _Coupling(r, classes, p, wins, q, qp).solve()

        loop_programs.spread(rows, row, work=8 * ROUNDS * cells)

    forms = [((rows, classes), "float32"), ((rows, cells), "float32"), ((rows, cells), "float32")]
    forms += [((rows, classes), "float32")]
    constants = [
        Known.of(slopes, "float32"),
        Known.of(offsets, "float32"),
        Known.of(cells_of_pairs),
    ]
    return loop_programs.program(b, body, forms, duels, *constants, name="couple")[0]


@dataclass(frozen=True)
class _Coupling:
    """One row's probabilities p that agree best with the chances by pair, `wins` [classes^2]."""

    row: Any
    classes: int
    p: Any
    wins: Any
    q: Any
    qp: Any

    def solve(self) -> None:
        """Sweeps over the classes until the error is small."""
        zero = tirx.const(0.0, "float32")
        self._matrix()
        done, total = loop_programs.cell("int32", 0), loop_programs.cell("float32", 0.0)
        with (
            loop_programs.serial(ROUNDS),
            loop_programs.when(tirx.EQ(done[0], tirx.const(0, "int32"))),
        ):
            total[0] = zero
            with loop_programs.serial(self.classes) as i:
                self.qp[self.row, i] = zero
                with loop_programs.serial(self.classes) as j:
                    step = self.q[self.row, self._cell(i, j)] * self.p[self.row, j]
                    self.qp[self.row, i] = self.qp[self.row, i] + step
                total[0] = total[0] + self.p[self.row, i] * self.qp[self.row, i]
            worst = loop_programs.cell("float32", 0.0)
            with loop_programs.serial(self.classes) as i:
                worst[0] = tirx.max(worst[0], tirx.abs(self.qp[self.row, i] - total[0]))
            with loop_programs.when(
                worst[0] < tirx.const(np.float32(CLOSE) / self.classes, "float32")
            ):
                done[0] = tirx.const(1, "int32")
            with (
                loop_programs.when(tirx.EQ(done[0], tirx.const(0, "int32"))),
                loop_programs.serial(self.classes) as i,
            ):
                self._move(i, total)

    def _cell(self, i: Any, j: Any) -> Any:
        return i * ex.prim(self.classes) + j

    def _matrix(self) -> None:
        """Q: sums of squares of the others' chances on the diagonal, products beside it."""
        r = self.row
        with loop_programs.serial(self.classes) as i:
            self.p[r, i] = tirx.const(np.float32(1) / self.classes, "float32")
            self.q[r, self._cell(i, i)] = tirx.const(0.0, "float32")
            with loop_programs.serial(self.classes) as j, loop_programs.when(tirx.NE(i, j)):
                theirs = self.wins[r, self._cell(j, i)]
                self.q[r, self._cell(i, i)] = self.q[r, self._cell(i, i)] + theirs * theirs
                self.q[r, self._cell(i, j)] = -(theirs * self.wins[r, self._cell(i, j)])

    def _move(self, i: Any, total: Any) -> None:
        r, one = self.row, tirx.const(1.0, "float32")
        corner = self.q[r, self._cell(i, i)]
        diff = loop_programs.cell("float32", (total[0] - self.qp[r, i]) / corner)
        self.p[r, i] = self.p[r, i] + diff[0]
        grown = one + diff[0]
        change = diff[0] * (diff[0] * corner + tirx.const(2.0, "float32") * self.qp[r, i])
        total[0] = (total[0] + change) / grown / grown
        with loop_programs.serial(self.classes) as j:
            moved = self.qp[r, j] + diff[0] * self.q[r, self._cell(i, j)]
            self.qp[r, j] = moved / grown
            self.p[r, j] = self.p[r, j] / grown
