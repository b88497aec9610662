"""Products with constant weights become products with panels of them."""

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import tirx as T

from compiler.passes.pack.matmul import PackMatmul, pack_panels
from compiler.targets.vector_unit import VectorUnit
from tests.compiler.conftest import build_module

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
    given = build_module(
        lambda builder, x: op.matmul(x, relax.const(weight)), {"x": (x, str(weight.dtype))}
    )
    tvm.ir.assert_structural_equal(PackMatmul(FOUR_LANES).apply(given), given)


def test_the_last_panel_is_filled_with_zeros() -> None:
    weight = np.arange(1, 11, dtype="float32").reshape(2, 5)
    wanted = [[[1, 2, 3], [6, 7, 8]], [[4, 5, 0], [9, 10, 0]]]
    np.testing.assert_array_equal(pack_panels(weight, 3), np.array(wanted, "float32"))
