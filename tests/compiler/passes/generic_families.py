"""Test graphs that no family of their own takes: what the generic schedule is for."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax

from compiler.targets.vector_unit import VectorUnit
from tests.compiler.passes import references
from tests.compiler.passes.family import Array, Dim, Family, Inputs

op = relax.op


def _lanes(unit: VectorUnit) -> tuple[int, ...]:
    return (unit.lanes(32), 4 * unit.lanes(32))


def generic(
    graph: Callable[..., Any], inputs: Inputs, exact: Callable[..., Array], least: int = 1
) -> Family:
    """Anything of dims n and m that no other family takes."""
    dims = {"n": Dim(67, _lanes, least), "m": Dim(300, _lanes, least)}
    used = {axis for shape, _ in inputs.values() for axis in shape}
    return Family(
        "generic",
        graph,
        inputs,
        {name: dim for name, dim in dims.items() if name in used},
        exact,
    )


ROW: Inputs = {"x": (("n", "m"), "float32")}
HALF: Inputs = {"x": (("n", "m"), "float16")}
TWO: Inputs = {"x": (("n", "m"), "float32"), "y": (("n", "m"), "float32")}
CUBE: Inputs = {"x": (("n", "m", 24), "float32")}

GENERIC = {
    "elementwise": generic(
        lambda b, x, y: op.tanh(op.multiply(op.add(x, y), op.exp(x))),
        TWO,
        lambda x, y: np.tanh((x + y) * np.exp(x)),
        0,
    ),
    "elementwise half": generic(
        lambda b, x: op.multiply(op.nn.relu(x), x), HALF, lambda x: np.maximum(x, 0) * x, 0
    ),
    "broadcast": generic(
        lambda b, x, y: op.multiply(x, op.expand_dims(y, 1)),
        {"x": (("n", "m", 5), "float32"), "y": (("n", 5), "float32")},
        lambda x, y: x * y[:, None],
    ),
    "softmax": generic(lambda b, x: op.nn.softmax(x), ROW, references.softmax),
    "softmax half": generic(lambda b, x: op.nn.softmax(x), HALF, references.softmax),
    "softmax of a middle axis": generic(
        lambda b, x: op.nn.softmax(x, 1), CUBE, lambda x: references.softmax(x, 1)
    ),
    "layer norm": generic(
        lambda b, x: op.nn.layer_norm(
            x, relax.const(np.full(24, 2, "float32")), relax.const(np.full(24, 3, "float32")), [-1]
        ),
        CUBE,
        lambda x: references.layer_norm(x) * 2 + 3,
    ),
    "row sums": generic(lambda b, x: op.sum(x, [1]), ROW, lambda x: x.sum(1)),
    "column maxima": generic(lambda b, x: op.max(x, [0]), ROW, lambda x: x.max(0)),
    "middle means": generic(lambda b, x: op.mean(x, [1]), CUBE, lambda x: x.mean(1)),
    "sum of all": generic(lambda b, x: op.sum(x), ROW, lambda x: x.sum()),
    "transpose": replace(
        generic(
            lambda b, x: op.permute_dims(x, [2, 0, 1]), CUBE, lambda x: x.transpose(2, 0, 1), 0
        ),
        kernel="transpose",
    ),
    "colours last": generic(
        lambda b, x: op.nn.relu(op.permute_dims(x, [0, 2, 1])),
        {"x": (("n", 3, "m"), "float32")},
        lambda x: np.maximum(x.transpose(0, 2, 1), 0),
        0,
    ),
    "take": generic(
        lambda b, x, y: op.take(x, y, 0),
        {"x": ((11, 24), "float32"), "y": (("n", "m"), "int64")},
        lambda x, y: x[y],
        0,
    ),
    "concat": generic(
        lambda b, x, y: op.concat([x, y], 1),
        {"x": (("n", "m"), "float32"), "y": (("n", 5), "float32")},
        lambda x, y: np.concatenate([x, y], 1),
        0,
    ),
    "resize": generic(
        lambda b, x: op.image.resize2d(
            x, relax.ShapeExpr([x.ty.shape.values[1] * 2, x.ty.shape.values[2] * 2]), layout="NHWC"
        ),
        {"x": ((2, "n", "m", 12), "float32")},
        references.double,
    ),
}
