"""Concatenations along a dim take in the programs that make their parts."""

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from compiler.passes.manager import to_kernels
from tests.compiler.conftest import HOST, build_module

op = relax.op


def programs(module: tvm.IRModule) -> list[Any]:
    return [
        function
        for function in to_kernels(module, HOST, {}).functions.values()
        if isinstance(function, tirx.PrimFunc)
    ]


def joined(builder: Any, x: Any, y: Any) -> Any:
    turned = builder.emit(op.permute_dims(x, [0, 2, 1]))
    return op.concat([turned, builder.emit(op.exp(y))], 1)


@pytest.mark.parametrize("extent", ["n", 5])
def test_what_makes_the_parts_is_part_of_the_program(extent: Any) -> None:
    inputs = {"x": (("b", 8, extent), "float32"), "y": (("b", "m", 8), "float32")}
    assert len(programs(build_module(joined, inputs))) == 1


def test_the_parts_lie_side_by_side(compile_graph: Any, draw: np.random.Generator) -> None:
    model = compile_graph(
        joined, {"x": (("b", 8, "n"), "float32"), "y": (("b", "m", 8), "float32")}
    )
    for b, n, m in [(1, 1, 1), (2, 7, 16), (3, 33, 0), (1, 0, 5), (2, 64, 65)]:
        x, y = (
            draw.standard_normal((b, 8, n)).astype("float32"),
            draw.standard_normal((b, m, 8)).astype("float32"),
        )
        np.testing.assert_allclose(
            model(x, y), np.concatenate([x.swapaxes(1, 2), np.exp(y)], axis=1), rtol=1e-5
        )
