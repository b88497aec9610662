"""Products of one-hot rows by a table are rows of the table."""

from typing import Any

import numpy as np
import pytest
from onnx import helper
from tvm import relax

from compiler.passes.simplify.one_hot_rows import OneHotRows
from compiler.tir.exprs import op_name
from tests.compiler.conftest import build_module
from tests.compiler.ir.onnx.running import model_of
from tests.compiler.passes import lowered
from tests.support.geometries import GEOMETRIES, geometry

op = relax.op
VALUES = 11
TABLE = np.random.default_rng(5).standard_normal((VALUES, 7)).astype("float32")
COUNTS = np.arange(VALUES, dtype="int32").reshape(1, 1, VALUES)


def operators(
    table: np.ndarray = TABLE,
    counts: np.ndarray = COUNTS,
    dtype: str = "int32",
    column: int | str = 1,
    swapped: bool = False,
) -> list[str]:
    """The operators that the pass leaves of one_hot(x) @ table, in order."""

    def graph(builder: Any, x: Any) -> Any:
        sides = [x, relax.const(counts.astype(dtype))]
        hot = builder.emit(op.equal(*(reversed(sides) if swapped else sides)))
        return builder.emit(op.matmul(builder.emit(op.astype(hot, "float32")), relax.const(table)))

    module = OneHotRows().apply(build_module(graph, {"x": (("n", "m", column), dtype)}))
    bindings = [one for block in module["main"].body.blocks for one in block.bindings]
    return [op_name(one.value) for one in bindings if isinstance(one.value, relax.Call)]


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_rows_are_read(dtype: str, swapped: bool) -> None:
    assert operators(dtype=dtype, swapped=swapped) == ["relax.call_tir"]


@pytest.mark.parametrize(
    "changed",
    [
        {"table": np.where(TABLE > 1, np.inf, TABLE).astype("float32")},
        {"table": np.where(TABLE > 1, np.nan, TABLE).astype("float32")},
        {"counts": COUNTS[..., ::-1]},
        {"counts": COUNTS + 1},
        {"dtype": "float32"},
        {"column": VALUES},
    ],
    ids=["infinite", "nan", "backwards", "from-one", "numbers", "whole-rows"],
)
def test_other_matmuls_stay(changed: dict[str, Any]) -> None:
    assert operators(**changed) == ["relax.equal", "relax.astype", "relax.matmul"]


@pytest.mark.parametrize("unit", [*GEOMETRIES, "native"])
def test_like_onnxruntime(unit: str) -> None:
    """An index that is no row of the table gives zeros, also the least and the greatest one."""
    nodes = [
        helper.make_node("Unsqueeze", ["x", "last"], ["column"]),
        helper.make_node("Equal", ["column", "places"], ["same"]),
        helper.make_node("Cast", ["same"], ["hot"], to=1),
        helper.make_node("MatMul", ["hot", "table"], ["rows"]),
        helper.make_node("Add", ["rows", "bias"], ["biased"]),
        helper.make_node("Relu", ["biased"], ["y"]),
    ]
    constants = {
        "last": np.array([-1]),
        "places": COUNTS,
        "table": TABLE,
        "bias": np.linspace(-1, 1, 7, dtype="float32"),
    }
    network = model_of(nodes, {"x": "int32[n,m]"}, constants, outputs=["y"])
    ends = np.iinfo(np.int32)
    feeds = [
        {"x": np.array([[0, VALUES - 1, VALUES, -1, ends.min, ends.max]], "int32")},
        {"x": np.arange(-3, 30, dtype="int32").reshape(11, 3)},
    ]
    dims = {"n": (1, 16), "m": (1, 16)}
    lowered.assert_like_onnxruntime(network, feeds, dims, geometry(unit))
