"""Programs that TVM's own analyses give up on."""

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx

from compiler.passes.cpu.schedule import ScheduleKernels
from compiler.targets.vector_unit import VectorUnit

op = relax.op


def test_a_gather_over_extents_that_are_additions(compile_graph: Any, draw: Any) -> None:
    n = tirx.Var("n", "int64")

    def graph(builder: Any, x: Any, length: Any) -> Any:
        row = op.expand_dims(x, 0)
        mirrored = builder.emit(
            op.nn.pad(builder.emit(row), [0, 0, 1, 1, 1, 1, 0, 1, 0, 1], "reflect")
        )
        return op.add(mirrored, builder.emit(op.sum(length)))

    model = compile_graph(graph, {"x": ((2, 3, n + 3, 4), "float32"), "length": ((n,), "float32")})
    for count in (1, 2, 7):
        x = draw.standard_normal((2, 3, count + 3, 4)).astype("float32")
        want = np.pad(x[None], ((0, 0), (1, 1), (1, 1), (0, 1), (0, 1)), "reflect")
        np.testing.assert_array_equal(model(x, np.zeros(count, np.float32)), want)


@pytest.mark.parametrize(("columns", "scheduled"), [(3, True), (8, False)])
def test_only_whole_views_are_left_to_tvm(columns: int, scheduled: bool) -> None:
    """TVM takes a copy of some leading elements for a view as well, and leaves it a loop when it
    counts them.
    """
    x = te.placeholder((1, 8), name="x")
    function = te.create_prim_func([x, te.compute((columns,), lambda i: x[0, i])])
    result = ScheduleKernels(VectorUnit()).apply(tvm.IRModule({"main": function}))["main"]
    assert ("tirx.is_scheduled" in result.attrs) == scheduled
