import numpy as np
import pytest
from tvm import relax

from compiler.bundle import weights
from compiler.ir import import_model
from compiler.passes import manager, memory_report
from relaxd.contract.dims.dims import Dim
from relaxd.contract.request import CompileRequest
from tests.compiler.conftest import HOST, build_module
from tests.compiler.graphs import add_and_divide
from tests.compiler.ranges import ranges_of

op = relax.op


def chain(builder, x):
    """Four products, each with a softmax behind it: eight tensors of [n, 64] floats, of which the
    last is the result.
    """
    w = relax.const(np.ones((64, 64), "float32"))
    for _ in range(4):
        x = builder.emit(op.nn.softmax(builder.emit(op.matmul(x, w)), -1))
    return x


def plan(dim):
    module = build_module(chain, {"x": (("n", 64), "float32")})
    ranges = ranges_of(module, dim)
    memory = memory_report.MemoryReport(ranges)
    manager.lower(module, HOST, ranges, (memory,))
    return memory.report


@pytest.mark.parametrize("most", [1, 100])
def test_tensors_share_storage_where_their_lives_allow(most):
    tensor = most * 64 * 4
    assert plan(Dim("n", 1, most)) == {
        "dims": "max",
        "unplanned_bytes": 8 * tensor,
        "planned_bytes": 3 * tensor,
    }


def test_a_dim_without_a_maximum_leaves_nothing_to_report():
    assert plan(Dim("n")) == {"dims": "max", "unplanned_bytes": None, "planned_bytes": None}


def test_booleans_take_whole_bytes():
    module = build_module(lambda builder, x: builder.emit(op.equal(x, x)), {"x": (("n",), "int8")})
    ranges = ranges_of(module, Dim("n", 1, 7))
    memory = memory_report.MemoryReport(ranges)
    manager.lower(module, HOST, ranges, (memory,))
    assert memory.report["unplanned_bytes"] == 7
    assert memory_report.count_allocated(module, ranges) == 0


def test_the_variables_of_an_import_last_until_the_plan():
    """No pass on the way puts other variables in the place of those that ranges are known by."""
    imported = import_model(add_and_divide(), CompileRequest.of(dims={"batch": "1:64%8@16"}))
    memory = memory_report.MemoryReport(imported.ranges)
    kernels = manager.to_kernels(imported.module, HOST, imported.ranges)
    manager.to_machine(weights.separate(kernels).module, HOST, imported.ranges, (memory,))
    assert [dim.name for dim in imported.ranges.values()] == ["batch"]
    assert memory.report["unplanned_bytes"] is not None
    assert memory.report["planned_bytes"] <= memory.report["unplanned_bytes"]
