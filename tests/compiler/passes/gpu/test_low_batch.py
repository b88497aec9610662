import numpy as np
import pytest
import tvm
from tvm import tirx

from compiler.passes.framework.attributes import FAMILY
from compiler.passes.gpu.bound import is_bound
from compiler.passes.gpu.low_batch import SplitLowBatch
from tests.compiler.passes.gpu.programs import matmul, target_of, twice
from tests.compiler.passes.gpu.serial import serial


@pytest.mark.parametrize("name", ["cuda-sm80", "metal"])
def test_rows_choose_the_kernel(name):
    before = matmul(64, 48)
    (after,) = (
        SplitLowBatch(target_of(name)).apply(tvm.IRModule({"product": before})).functions.values()
    )
    assert after.attrs[FAMILY] == "LowBatch"
    assert is_bound(after)
    assert isinstance(after.body.block.body, tirx.IfThenElse)
    draw = np.random.default_rng(0)
    w = draw.standard_normal((48, 64)).astype("float32")
    run = tvm.compile(serial(after).with_attr("global_symbol", "main"), target="llvm")
    for rows in (1, 2, 3, 8, 9, 40):
        x, y = (
            draw.standard_normal((rows, 64)).astype("float32"),
            tvm.runtime.tensor(np.zeros((rows, 48), "float32")),
        )
        run(tvm.runtime.tensor(x), tvm.runtime.tensor(w), y)
        np.testing.assert_allclose(y.numpy(), x @ w.T, rtol=1e-4, atol=1e-4)


def test_what_is_no_matmul_is_left_alone():
    module = tvm.IRModule({"twice": twice()})
    tvm.ir.assert_structural_equal(SplitLowBatch(target_of("cuda-sm80")).apply(module), module)
