"""Divisions behind conditions: what LLVM's vectors make of them, and where they are computed."""

import numpy as np
import pytest
import tvm
from onnx import helper
from tvm.script import tirx as T

from compiler.passes.tvm_fixes.hoist_divisions import HoistDivisions
from tests.compiler.ir.onnx.running import model_of, normal
from tests.compiler.passes.lowered import assert_like_onnxruntime
from tests.support.geometries import GEOMETRIES, geometry


@pytest.mark.parametrize("unit", [*GEOMETRIES, "native"])
@pytest.mark.parametrize("pads", [[0, 1, 2, 0, 0, 3], [1, 0, 0, 0, 2, 1], [0, 2, 5, 0, 0, 0]])
def test_rows_padded_on_the_left_are_as_in_onnxruntime(pads: list[int], unit: str) -> None:
    node = helper.make_node("Pad", ["x", "pads"], ["y"])
    model = model_of([node], {"x": "float32[2,s,15]"}, {"pads": np.array(pads)})
    feeds = [{"x": normal(2, size, 15)} for size in (1, 2, 5, 17)]
    assert_like_onnxruntime(model, feeds, target=geometry(unit))


def test_a_steady_division_is_computed_before_the_loop() -> None:
    @T.prim_func(s_tir=True)
    def before(x: T.handle, y: T.handle, n: T.int64):
        source = T.match_buffer(x, (64,), "float32")
        result = T.match_buffer(y, (64,), "float32")
        for i in T.serial(T.int64(8)):
            for j in T.serial(T.int64(8)):
                result[i * T.int64(8) + j] = T.if_then_else(
                    j > T.int64(2), source[T.truncdiv(i, n) + T.truncdiv(j, n)], T.float32(0)
                )

    text = HoistDivisions().apply(tvm.IRModule({"main": before}))["main"].script()
    bound, inner = text.index("T.Select(n == T.int64(0), T.int64(1), n)"), text.index("for j")
    assert text.index("for i") < bound < inner
    # The other depends on the inner loop.
    assert text.count("T.Div(j, n)") == 1
    assert text.count("T.Div(i,") == 1
