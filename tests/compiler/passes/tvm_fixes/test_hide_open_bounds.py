from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper
from tvm import relax, tirx

from compiler.passes.tvm_fixes.hide_open_bounds import HideOpenBounds
from tests.compiler.ir.onnx.running import model_of, normal
from tests.compiler.passes.lowered import assert_like_onnxruntime


def slice_model(most: int) -> onnx.ModelProto:
    """Every other row and column, up to a constant."""
    constants = {
        "from": np.array([0, 0]),
        "to": np.array([most, most]),
        "axes": np.array([1, 2]),
        "steps": np.array([2, 2]),
    }
    nodes = [
        helper.make_node("Slice", ["x", *constants], ["part"]),
        helper.make_node("Softmax", ["part"], ["soft"]),
        helper.make_node("ReduceSum", ["soft"], ["y"], keepdims=0),
    ]
    return model_of(nodes, {"x": "float32[n,h,w]"}, constants, outputs=["soft", "y"])


@pytest.mark.parametrize("most", [6, 1_000_000, 2**31 - 1])
def test_images_of_open_extents_take_the_memory_they_need(most: int) -> None:
    feeds = [{"x": normal(*shape)} for shape in ((1, 1, 1), (2, 5, 8), (1, 40, 33))]
    assert_like_onnxruntime(slice_model(most), feeds)


def allocation(dims: dict[str, int]) -> tvm.IRModule:
    """A function of x[h] that allocates min(1000, h) floats."""
    h = tirx.Var("h", "int64")
    x = relax.Var("x", relax.TensorType([h], "float32"))
    builder = relax.BlockBuilder()
    attributes: dict[str, Any] = {"tir_var_upper_bound": dims} if dims else {}
    with builder.function("main", [x], attrs=attributes):
        extent = tirx.min(tirx.IntImm("int64", 1000), h)
        floats = builder.emit(
            relax.op.builtin.alloc_tensor(relax.ShapeExpr([extent]), "float32", 0)
        )
        builder.emit_func_output(floats)
    return builder.get()


def greatest(module: tvm.IRModule) -> int:
    """The bound that TVM finds of the extent that is allocated."""
    call = module["main"].body.blocks[0].bindings[0].value
    return int(tvm.sym.Analyzer().const_int_bound(call.args[0].values[0]).max_value)


def test_only_a_declared_maximum_bounds_the_plan() -> None:
    assert greatest(allocation({})) == 1000
    assert greatest(HideOpenBounds().apply(allocation({}))) > 1 << 60
    assert greatest(HideOpenBounds().apply(allocation({"h": 5000}))) == 1000


def test_an_extent_is_planned_as_large_as_it_gets() -> None:
    """The number of windows times what each holds: TVM's bound is b * h * w, at most 3 * 192 ** 2
    times the number of windows.
    """
    most = {"b": 3, "h": 192, "w": 192}
    b, h, w = (tirx.Var(name, "int64") for name in most)
    x = relax.Var("x", relax.TensorType([b, h, w], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x], attrs={"tir_var_upper_bound": most}):
        extents = [tirx.floordiv(b * h * w, tirx.floordiv(h, 8) * tirx.floordiv(w, 8)), h * w]
        shape = relax.ShapeExpr(extents)
        builder.emit_func_output(builder.emit(relax.op.builtin.alloc_tensor(shape, "float32", 0)))
    hidden = HideOpenBounds().apply(builder.get())
    call = hidden["main"].body.blocks[0].bindings[0].value
    loose, tight = call.args[0].values
    assert isinstance(loose, tvm.ir.Call)
    assert tight.same_as(extents[1])
