from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from compiler.passes.match.op_patterns import INJECTIVE, MARK
from compiler.passes.tvm_fixes.correct_patterns import CorrectPatterns
from tests.compiler.conftest import Compiled, build_module
from tests.compiler.passes import references

pytestmark = pytest.mark.slow

op = relax.op
Graph = Callable[[Any, Any], Any]
Array = np.ndarray[Any, Any]


def weights(*shape: int) -> Array:
    return (np.random.default_rng(shape).standard_normal(shape) * 0.1).astype("float32")


def convolution(out: int, kernel: int, groups: int = 1) -> tuple[Graph, Callable[[Array], Array]]:
    weight, pads = weights(out, 24 // groups, kernel, kernel), (kernel // 2,) * 4
    filters = relax.const(np.ascontiguousarray(weight.transpose(0, 2, 3, 1)))
    layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_layout": "NHWC"}

    def exact(x: Array) -> Array:
        return references.convolution(
            x.transpose(0, 3, 1, 2), weight, (1, 1), pads, groups=groups
        ).transpose(0, 2, 3, 1)

    return lambda builder, x: op.nn.conv2d(
        x, filters, padding=pads, groups=groups, **layouts
    ), exact


MATRIX = weights(24, 40)
REDUCTIONS: dict[str, tuple[Graph, Callable[[Array], Array]]] = {
    "convolution": convolution(40, 1),
    "winograd": convolution(32, 3),
    "depthwise": convolution(24, 3, 24),
    "grouped": convolution(24, 3, 4),
    "product": (lambda builder, x: op.matmul(x, relax.const(MATRIX)), lambda x: x @ MATRIX),
    "both computed": (
        lambda builder, x: op.matmul(x, op.permute_dims(x, [0, 1, 3, 2])),
        lambda x: x @ x.transpose(0, 1, 3, 2),
    ),
    "pool": (
        lambda builder, x: op.nn.max_pool2d(x, (3, 3), (1, 1), (1, 1, 1, 1), layout="NHWC"),
        lambda x: references.windows(x, 3, 1, 1, -np.inf).max((4, 5)),
    ),
}
LATER: dict[str, tuple[Callable[[Any], Any], Callable[[Array], Array]]] = {
    "pad below": (
        lambda y: op.nn.pad(y, [0, 0, 0, 1, 0, 1, 0, 0]),
        lambda y: np.pad(y, [(0, 0), (0, 1), (0, 1), (0, 0)]),
    ),
    "pad columns": (
        lambda y: op.nn.pad(y, [0, 0, 0, 0, 0, 0, 0, 7]),
        lambda y: np.pad(y, [(0, 0), (0, 0), (0, 0), (0, 7)]),
    ),
    "first columns": (lambda y: op.strided_slice(y, [3], [0], [5]), lambda y: y[..., :5]),
    "first rows": (lambda y: op.strided_slice(y, [1], [0], [1]), lambda y: y[:, :1]),
}


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_results_are_padded_and_cut(reduction: str, draw: np.random.Generator) -> None:
    reduce, exact = REDUCTIONS[reduction]

    def graph(builder: Any, *images: Any) -> Any:
        results = [builder.emit(op.nn.relu(builder.emit(reduce(builder, x)))) for x in images]
        return relax.Tuple(
            [builder.emit(later(y)) for y, (later, _) in zip(results, LATER.values(), strict=True)]
        )

    inputs = {f"x{i}": (("n", "h", "w", 24), "float32") for i in range(len(LATER))}
    run = Compiled(build_module(graph, inputs)).machine["main"]
    for n, h, w in [(1, 7, 7), (2, 12, 9), (3, 16, 33)]:
        x = draw.standard_normal((n, h, w, 24)).astype("float32")
        arguments = [tvm.runtime.tensor(x)] * len(inputs)
        for got, (_, later) in zip(run(*arguments), LATER.values(), strict=True):
            np.testing.assert_allclose(
                got.numpy(), later(np.maximum(exact(x.astype("float64")), 0)), rtol=1e-4, atol=1e-4
            )


def marks(graph: Callable[..., Any]) -> list[int]:
    """The marks of a graph's programs before and after."""
    legal = relax.transform.LegalizeOps()(
        build_module(graph, {"x": (("n", 8), "float32"), "y": ((8,), "float32")})
    )
    all_marks = []
    for module in (
        relax.transform.AnnotateTIROpPattern()(legal),
        CorrectPatterns().apply(relax.transform.AnnotateTIROpPattern()(legal)),
    ):
        all_marks += [
            int(func.attrs[MARK])
            for func in module.functions.values()
            if isinstance(func, tvm.tirx.PrimFunc)
        ]
    return all_marks


@pytest.mark.parametrize(
    "later",
    [lambda x: op.nn.pad(x, [0, 0, 0, 3]), lambda x: op.strided_slice(x, [1], [0], [5])],
    ids=["padding", "slice"],
)
def test_what_ends_elsewhere_is_not_elementwise(later: Callable[[Any], Any]) -> None:
    elementwise, corrected = marks(lambda builder, x, y: later(x))
    assert elementwise < INJECTIVE == corrected


@pytest.mark.parametrize(
    "graph",
    [lambda builder, x, y: op.nn.relu(x), lambda builder, x, y: op.add(x, y)],
    ids=["function", "broadcast"],
)
def test_what_keeps_its_extents_is_left_alone(graph: Callable[..., Any]) -> None:
    before, after = marks(graph)
    assert before == after < INJECTIVE
