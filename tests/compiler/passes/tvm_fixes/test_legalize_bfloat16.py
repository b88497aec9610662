"""Casts to narrow floats and back round where the model has them, in kernels that hold more."""

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper
from tvm.script import tirx as T

from tests.compiler.conftest import HOST
from tests.compiler.ir.onnx.running import Built, model_of, normal, session_of
from tests.compiler.passes.lowered import build
from tests.compiler.quick_code import register_lowering
from tests.support import geometries

BFLOAT = ml_dtypes.bfloat16
CODES = {"bfloat16": TensorProto.BFLOAT16, "float16": TensorProto.FLOAT16}
EXTENTS = (0, 1, 15, 16, 17)
NODE = helper.make_node

Array = np.ndarray[Any, Any]


@T.prim_func(private=True, s_tir=True)
def round_each(
    x: T.Buffer((T.int64(3), T.int64(8)), "bfloat16"),
    w: T.Buffer((T.int64(3), T.int64(8)), "float32"),
    y: T.Buffer((T.int64(3), T.int64(8)), "bfloat16"),
    z: T.Buffer((T.int64(3), T.int64(8)), "float32"),
):
    total = T.alloc_buffer((T.int64(8),), "bfloat16", scope="local")
    for j in range(T.int64(3)):
        for i in T.vectorized(T.int64(8)):
            total[i] = x[j, i] + T.bfloat16(0.1)
        for i in T.vectorized(T.int64(8)):
            z[j, i] = T.Cast(
                "float32", T.Select(x[j, i] < total[i], T.exp(x[j, i]), x[j, i]) * x[j, i]
            )
        for i in T.vectorized(T.int64(8)):
            y[j, i] = T.Cast("bfloat16", w[j, i])


def tensor(array: Array) -> Any:
    """numpy has no bfloat16 of its own, and DLPack none of numpy's extensions."""
    if array.dtype != BFLOAT:
        return tvm.runtime.tensor(np.require(array, requirements="C"))
    stored = tvm.runtime.tensor(np.require(array, requirements="C").view("uint16"))
    return stored._create_view(array.shape, "bfloat16")


def numbers(result: Any) -> Array:
    if str(result.dtype) != "bfloat16":
        return result.numpy()
    return result._create_view(result.shape, "uint16").numpy().view(BFLOAT)


def round_to(x: Array, dtype: str) -> Array:
    """To the narrow type and back."""
    with np.errstate(over="ignore", invalid="ignore"):
        return x.astype(dtype).astype(np.float32)


def test_a_kernel_rounds_after_every_operation() -> None:
    target = tvm.target.Target({"kind": "llvm", "opt-level": 0})
    module = tvm.IRModule({"rounding": round_each.with_attr("global_symbol", "rounding")})
    kernel = tvm.tirx.build(module, target, pipeline=register_lowering())["rounding"]
    x, w = normal(3, 8).astype(BFLOAT), normal(3, 8)
    # NaN whose bits rounding carries over, the greatest number, halfway below and above, infinity.
    edges = (0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0x7F7FFFFF, 0x3F808000, 0x3F818000, 0x7F800000, 1)
    w[0] = np.array(edges, np.uint32).view(np.float32)
    y, z = tensor(np.zeros_like(x)), tensor(np.zeros_like(w))
    kernel(tensor(x), tensor(w), y, z)
    np.testing.assert_array_equal(numbers(y).astype("f4"), round_to(w, "bfloat16"))
    wide, total = x.astype("f4"), x + BFLOAT(0.1)
    lesser = np.where(x < total, round_to(np.exp(wide), "bfloat16"), wide)
    np.testing.assert_allclose(numbers(z), round_to(lesser * wide, "bfloat16"), rtol=1e-6)


def function(name: str, source: str, gives: str) -> onnx.NodeProto:
    """A function of one float32 tensor of rows."""
    match name:
        case "LayerNormalization":
            return NODE(name, [source, "scale"], [gives])
        case "ReduceSum":
            return NODE(name, [source, "last"], [gives], keepdims=1)
    return NODE(name, [source], [gives])


OWN = ("Neg", "Tanh", "Sigmoid", "Erf", "Exp", "ReduceSum")
"""Functions that are called in the narrow type as well; they are computed in float32."""
CONSTANTS = {"scale": np.array([1, 2, -1, 0.5, 3], np.float32), "last": np.array([-1], np.int64)}


def around(name: str, dtype: str) -> onnx.ModelProto:
    """The function behind a cast, before one, between two, with another node between the casts, and
    behind an operator of the narrow type.
    """
    small, wide = {"to": CODES[dtype]}, {"to": TensorProto.FLOAT}
    nodes = [
        NODE("Cast", ["w"], ["w_wide"], **wide),
        function(name, "w_wide", "behind"),
        function(name, "x", "called"),
        NODE("Cast", ["called"], ["before"], **small),
        function(name, "x", "first"),
        NODE("Cast", ["first"], ["first_narrow"], **small),
        NODE("Cast", ["first_narrow"], ["first_wide"], **wide),
        function(name, "first_wide", "between"),
        NODE("Neg", ["x"], ["turned"]),
        NODE("CastLike", ["turned", "w"], ["turned_narrow"]),
        NODE("Cast", ["turned_narrow"], ["turned_wide"], **wide),
        NODE("Neg", ["turned_wide"], ["alone"]),
        NODE("Cast", ["x"], ["x_narrow"], **small),
        NODE("Mul", ["x_narrow", "x_narrow"], ["square"]),
        NODE("Cast", ["square"], ["square_wide"], **wide),
        function(name, "square_wide", "inside"),
    ]
    inputs = {"x": "float32[n,5]", "w": f"{dtype}[n,5]"}
    outputs = ["behind", "before", "between", "alone", "inside"]
    if name in OWN:
        nodes.append(function(name, "x_narrow", "own"))
        outputs.append("own")
    return model_of(nodes, inputs, CONSTANTS, opset=20, outputs=outputs)


def expect(name: str, dtype: str, x: Array, w: Array) -> dict[str, Array]:
    """By ONNX Runtime's function of float32, and numpy's casts."""
    alone = model_of([function(name, "x", "y")], {"x": "float32[n,5]"}, CONSTANTS, opset=20)
    session = session_of(alone)

    def call(values: Array) -> Array:
        if name == "ReduceSum":  # of no rows, ONNX Runtime gives another shape
            return values.sum(-1, keepdims=True)
        return session.run(None, {"x": values})[0]

    first = call(x)
    own = {"own": call(round_to(x, dtype)).astype(dtype)} if name in OWN else {}
    return own | {
        "behind": call(w.astype(np.float32)),
        "before": first.astype(dtype),
        "between": call(round_to(first, dtype)),
        "alone": round_to(x, dtype),
        "inside": call(round_to(round_to(x, dtype) ** 2, dtype)),
    }


def run(built: Built, *arrays: Array) -> dict[str, Array]:
    outputs = built.machine["main"](*map(tensor, arrays))
    names = (spec.name for spec in built.imported.outputs)
    return dict(zip(names, map(numbers, outputs), strict=True))


def check(name: str, dtype: str, target: Any = HOST) -> None:
    built = build(around(name, dtype), {"n": (0, 64)}, target)
    for rows in EXTENTS:
        x, w = normal(rows, 5), normal(rows, 5).astype(dtype)
        got = run(built, x, w)
        for output, theirs in expect(name, dtype, x, w).items():
            ours = got[output]
            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
            # Half a step of bfloat16 is 2e-3.
            np.testing.assert_allclose(
                ours.astype("f8"), theirs.astype("f8"), rtol=2e-5, atol=2e-6, err_msg=output
            )


FUNCTIONS = (
    "Neg", "Tanh", "Sigmoid", "Erf", "Exp", "Gelu", "Softmax", "LayerNormalization", "ReduceSum",
)  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_casts_beside_functions(name: str) -> None:
    check(name, "bfloat16")


@pytest.mark.parametrize("name", ["Tanh", "Softmax"])
def test_casts_of_float16_beside_functions(name: str) -> None:
    check(name, "float16")


@pytest.mark.parametrize(
    ("name", "geometry"),
    list(zip(("Tanh", "Softmax", "Exp", "Erf"), geometries.GEOMETRIES, strict=True)),
)
def test_casts_in_other_vectors(name: str, geometry: str) -> None:
    check(name, "bfloat16", geometries.geometry(geometry))
