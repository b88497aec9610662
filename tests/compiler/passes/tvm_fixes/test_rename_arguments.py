"""A dim that a match_cast names a second time is handed over by its first name."""

# A module of TVMScript is no class, and binds names that it does not read.
# ruff: noqa: N805, F841

import numpy as np
import pytest
import tvm
from onnx import TensorProto, helper
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from compiler.passes.tvm_fixes.rename_arguments import RenameArguments
from tests.compiler.ir.onnx.running import normal
from tests.compiler.passes.lowered import build


@I.ir_module
class Renamed:
    @T.prim_func(private=True, s_tir=True)
    def scale(x: T.handle, n: T.int64, y: T.handle):
        m = T.int64()
        source = T.match_buffer(x, (m,), "float32")
        result = T.match_buffer(y, (m,), "float32")
        for i in range(m):
            with T.sblock("scale"):
                v = T.axis.spatial(m, i)
                result[v] = source[v] * T.Cast("float32", n)

    @R.function
    def main(x: R.Tensor(("first",), "float32")) -> R.Tensor(("first",), "float32"):
        first = T.int64()
        second = T.int64()
        cls = Renamed
        with R.dataflow():
            shape: R.Shape([first]) = R.shape([first])
            R.output(shape)
        again: R.Shape([second]) = R.match_cast(shape, R.Shape([second]))
        with R.dataflow():
            y = R.call_tir(cls.scale, (x, second), out_ty=R.Tensor((first,), "float32"))
            R.output(y)
        return y


def test_a_program_gets_the_first_name() -> None:
    module: tvm.IRModule = Renamed
    changed = RenameArguments().apply(module)
    assert "(x, first)" in changed.script()
    assert "(x, second)" in module.script()
    assert isinstance(RenameArguments().apply(changed), tvm.IRModule)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_an_inverse_transform_of_which_each_axis_is_a_dim(axis: int) -> None:
    float32, int64 = TensorProto.FLOAT, TensorProto.INT64
    graph = helper.make_graph(
        [helper.make_node("DFT", ["x", "", "axis"], ["y"], inverse=1, onesided=1)],
        "inverse",
        [
            helper.make_tensor_value_info("x", float32, ["a", "b", "c", 2]),
            helper.make_tensor_value_info("axis", int64, []),
        ],
        [helper.make_tensor_value_info("y", float32, [None] * 4)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    built = build(model, {"a": (1, 16), "b": (1, 16), "c": (1, 16)})
    for shape in ((2, 3, 4), (5, 2, 7), (9, 9, 2)):
        x = normal(*shape, 2)
        (y,) = built.run({"x": x, "axis": np.array(axis, np.int64)})
        wanted = np.fft.irfft(x[..., 0] + 1j * x[..., 1], axis=axis)
        np.testing.assert_allclose(np.asarray(y)[..., 0], wanted, atol=1e-5)
