"""Products with constant weights become products with panels of them."""

from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper
from tvm import relax
from tvm.script import tirx as T

from compiler.bundle.weights import separate
from compiler.ir import import_model
from compiler.passes.manager import to_kernels
from compiler.passes.pack.matmul import PackMatmul, pack_panels
from compiler.targets.vector_unit import VectorUnit
from relaxd.contract.request import CompileRequest
from tests.compiler.conftest import HOST, build_module
from tests.compiler.ir.onnx.running import assert_close, model_of, session_of
from tests.compiler.passes.lowered import build

op = relax.op
FOUR_LANES = VectorUnit(vector_bits=128)
WEIGHT = np.arange(15, dtype="float32").reshape(3, 5)
PANELS = np.zeros((1, 3, 8), "float32")
PANELS[0, :, :5] = WEIGHT


@T.prim_func(private=True, s_tir=True)
def panel_matmul(
    x: T.Buffer((T.int64(4), T.int64(3)), "float32"),
    panels: T.Buffer((T.int64(1), T.int64(3), T.int64(8)), "float32"),
    matmul: T.Buffer((T.int64(4), T.int64(5)), "float32"),
):
    T.func_attr({"op_pattern": 4, "tirx.noalias": True})
    for i, j, k in T.grid(T.int64(4), T.int64(5), T.int64(3)):
        with T.sblock("matmul"):
            row, column, depth = T.axis.remap("SSR", [i, j, k])
            with T.init():
                matmul[row, column] = T.float32(0)
            matmul[row, column] = (
                matmul[row, column]
                + x[row, depth] * panels[column // T.int64(8), depth, column % T.int64(8)]
            )


def before(builder: Any, x: Any) -> Any:
    return op.nn.relu(op.matmul(x, relax.const(WEIGHT)))


def after(builder: Any, x: Any) -> Any:
    ty = relax.TensorType([4, 5], "float32")
    return op.nn.relu(
        relax.call_tir(builder.add_func(panel_matmul, "panel_matmul"), [x, relax.const(PANELS)], ty)
    )


def test_weights_lie_in_panels() -> None:
    inputs = {"x": ((4, 3), "float32")}
    tvm.ir.assert_structural_equal(
        PackMatmul(FOUR_LANES).apply(build_module(before, inputs)), build_module(after, inputs)
    )


@T.prim_func(private=True, s_tir=True)
def column_matmul(
    x: T.Buffer((T.int64(4), T.int64(3)), "float32"),
    column: T.Buffer((T.int64(3),), "float32"),
    matmul: T.Buffer((T.int64(4), T.int64(1)), "float32"),
):
    T.func_attr({"op_pattern": 4, "tirx.noalias": True})
    for i, j, k in T.grid(T.int64(4), T.int64(1), T.int64(3)):
        with T.sblock("matmul"):
            row, one, depth = T.axis.remap("SSR", [i, j, k])
            with T.init():
                matmul[row, one] = T.float32(0)
            matmul[row, one] = matmul[row, one] + x[row, depth] * column[depth]


def test_a_single_column_fills_no_panel() -> None:
    def before(builder: Any, x: Any) -> Any:
        return op.nn.relu(op.matmul(x, relax.const(WEIGHT[:, :1])))

    def after(builder: Any, x: Any) -> Any:
        function = builder.add_func(column_matmul, "column_matmul")
        column = relax.const(np.ascontiguousarray(WEIGHT[:, 0]))
        ty = relax.TensorType([4, 1], "float32")
        return op.nn.relu(relax.call_tir(function, [x, column], ty))

    inputs = {"x": ((4, 3), "float32")}
    tvm.ir.assert_structural_equal(
        PackMatmul(FOUR_LANES).apply(build_module(before, inputs)), build_module(after, inputs)
    )


@pytest.mark.parametrize(
    ("x", "weight"),
    [
        (("n", 3), WEIGHT.astype("float16")),
        (("n", 3), WEIGHT[None]),
        ((3,), WEIGHT),
        (("n", 3), WEIGHT[:, :0]),
    ],
    ids=["half", "batch", "vector", "empty"],
)
def test_others_stay(x: tuple[Any, ...], weight: np.ndarray[Any, Any]) -> None:
    module = build_module(
        lambda builder, x: op.matmul(x, relax.const(weight)), {"x": (x, str(weight.dtype))}
    )
    tvm.ir.assert_structural_equal(PackMatmul(FOUR_LANES).apply(module), module)


def test_the_last_panel_is_filled_with_zeros() -> None:
    weight = np.arange(1, 11, dtype="float32").reshape(2, 5)
    wanted = [[[1, 2, 3], [6, 7, 8]], [[4, 5, 0], [9, 10, 0]]]
    np.testing.assert_array_equal(pack_panels(weight, 3), np.array(wanted, "float32"))


def tie(untied: bool) -> onnx.ModelProto:
    """Rows of a table times its transpose, or that of another table of its shape."""
    table = np.random.default_rng(0).standard_normal((75, 24)).astype("float32")
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["x"], axis=0),
        helper.make_node("MatMul", ["x", "weight"], ["y"]),
    ]
    constants = {"table": table, "weight": np.ascontiguousarray((table + untied).T)}
    return model_of(nodes, {"ids": "int64[n,m]"}, constants)


@pytest.mark.parametrize("untied", [False, True])
def test_a_tied_table_is_stored_once(untied: bool) -> None:
    model = tie(untied)
    imported = import_model(model, CompileRequest.of(dims={"n": (1, 4), "m": (1, 8)}))
    constants = separate(to_kernels(imported.module, HOST, imported.ranges)).constants
    assert len(constants) == 1 + untied
    built, session = build(model, {"n": (1, 4), "m": (1, 8)}), session_of(model)
    for ids in ([[0]], [[3, 74, -11], [9, 2, 31]]):
        feed = {"ids": np.array(ids, np.int64)}
        assert_close(built.run(feed), session.run(None, feed), ["x", "y"])


def test_columns_of_a_table_are_not_its_rows() -> None:
    """A square table, read along its other axis."""
    table = np.arange(16, dtype="float32").reshape(4, 4)
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["x"], axis=1),
        helper.make_node("MatMul", ["x", "weight"], ["y"]),
    ]
    model = model_of(nodes, {"ids": "int64[4]"}, {"table": table, "weight": table.T.copy()})
    feed = {"ids": np.array([2, 0, 1, 1])}
    assert_close(build(model).run(feed), session_of(model).run(None, feed), ["x", "y"])
