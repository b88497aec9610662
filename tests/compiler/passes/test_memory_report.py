import numpy as np
import pytest
from tvm import relax

from compiler.passes import manager, memory_report
from relaxd.contract.dims import Dim
from tests.compiler.conftest import HOST, build_module

op = relax.op


def chain(builder, x):
    """Four products, each with a softmax behind it: eight tensors of [n, 64] floats, of which the
    last is the result.
    """
    w = relax.const(np.ones((64, 64), "float32"))
    for _ in range(4):
        x = builder.emit(op.nn.softmax(builder.emit(op.matmul(x, w)), -1))
    return x


def plan(dims):
    module = build_module(chain, {"x": (("n", 64), "float32")})
    memory = memory_report.MemoryReport(dims)
    manager.lower(module, HOST, dims, (memory,))
    return memory.report


@pytest.mark.parametrize("most", [1, 100])
def test_tensors_share_storage_where_their_lives_allow(most):
    tensor = most * 64 * 4
    assert plan((Dim("n", 1, most),)) == {
        "dims": "max",
        "unplanned_bytes": 8 * tensor,
        "planned_bytes": 3 * tensor,
    }


def test_a_dim_without_a_maximum_leaves_nothing_to_report():
    assert plan((Dim("n"),)) == {"dims": "max", "unplanned_bytes": None, "planned_bytes": None}


def test_integers_of_few_bits_take_whole_bytes():
    module = build_module(lambda builder, x: builder.emit(op.equal(x, x)), {"x": (("n",), "int8")})
    memory = memory_report.MemoryReport((Dim("n", 1, 7),))
    manager.lower(module, HOST, (Dim("n", 1, 7),), (memory,))
    assert memory.report["unplanned_bytes"] == 7
    assert memory_report.allocated(module, (Dim("n", 1, 7),)) == 0
