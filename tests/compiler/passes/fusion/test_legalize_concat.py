"""Concatenations along a dim take in the programs that make their parts."""

from typing import Any

import numpy as np
import pytest
import tvm
from onnx import helper
from tvm import relax, tirx

from compiler.ir import import_model
from compiler.passes.manager import to_kernels
from relaxd.contract.request import CompileRequest
from tests.compiler.conftest import HOST, build_module
from tests.compiler.ir.onnx.running import model_of
from tests.compiler.passes.lowered import assert_like_onnxruntime

op = relax.op


def programs(module: tvm.IRModule) -> list[Any]:
    return [
        function
        for function in to_kernels(module, HOST, {}).functions.values()
        if isinstance(function, tirx.PrimFunc)
    ]


def concat_both(builder: Any, x: Any, y: Any) -> Any:
    turned = builder.emit(op.permute_dims(x, [0, 2, 1]))
    return op.concat([turned, builder.emit(op.exp(y))], 1)


@pytest.mark.parametrize("extent", ["n", 5])
def test_what_makes_the_parts_is_part_of_the_program(extent: Any) -> None:
    inputs = {"x": (("b", 8, extent), "float32"), "y": (("b", "m", 8), "float32")}
    assert len(programs(build_module(concat_both, inputs))) == 1


def test_the_parts_lie_side_by_side(compile_graph: Any, draw: np.random.Generator) -> None:
    model = compile_graph(
        concat_both, {"x": (("b", 8, "n"), "float32"), "y": (("b", "m", 8), "float32")}
    )
    for b, n, m in [(1, 1, 1), (2, 7, 16), (3, 33, 0), (1, 0, 5), (2, 64, 65)]:
        x, y = (
            draw.standard_normal((b, 8, n)).astype("float32"),
            draw.standard_normal((b, m, 8)).astype("float32"),
        )
        np.testing.assert_allclose(
            model(x, y), np.concatenate([x.swapaxes(1, 2), np.exp(y)], axis=1), rtol=1e-5
        )


def test_rows_that_are_gathered_are_written_where_they_are_joined(
    draw: np.random.Generator,
) -> None:
    """A net that computes on edges of a graph does so."""
    nodes = [
        helper.make_node("Gather", ["x", "from"], ["sources"], axis=0),
        helper.make_node("Gather", ["x", "to"], ["targets"], axis=0),
        helper.make_node("Concat", ["sources", "targets", "edge"], ["y"], axis=1),
    ]
    inputs = {"x": "float32[n,20]", "from": "int64[k]", "to": "int64[k]", "edge": "float32[k,3]"}
    dims = {"n": (1, 500), "k": (0, 5000)}
    model = model_of(nodes, inputs, outputs=["y"])
    imported = import_model(model, CompileRequest.of(dims=dims))
    names = {
        gvar.name_hint
        for gvar, func in to_kernels(imported.module, HOST, imported.ranges).functions.items()
        if isinstance(func, tirx.PrimFunc)
    }
    # Each check has the number of its node's message.
    assert names == {"check_indices", "check_indices1", "fused_take_take_concatenate"}
    feeds = [
        {
            "x": draw.standard_normal((n, 20)).astype("float32"),
            "from": draw.integers(-n, n, k),
            "to": draw.integers(-n, n, k),
            "edge": draw.standard_normal((k, 3)).astype("float32"),
        }
        for n, k in ((1, 1), (7, 0), (31, 33), (500, 5000))
    ]
    assert_like_onnxruntime(model, feeds, dims)
