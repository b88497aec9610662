"""Floats that no integer of the type is: Cast gives what NumPy gives, in vectors and alone."""

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import relaxd
from compiler import compile_model
from tests.compiler.ir.divisions import Array
from tests.compiler.ir.onnx.running import build, model_of

INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 0.99, -0.99, 127.9, 128, 255.5, 300.7, -300.7)
EDGES = [sign * 2.0**bits for bits in (7, 8, 15, 16, 31, 32, 53, 62, 63, 64) for sign in (1, -1)]


def floats(dtype: str) -> Array:
    info = np.finfo(dtype)
    with np.errstate(over="ignore"):  # of float16
        near = [np.nextafter(np.array(edge, dtype), np.array(0, dtype)) for edge in EDGES]
        return np.array([*SPECIAL, *EDGES, *near, info.max, info.min, info.tiny], dtype)


def convert_by_numpy(x: Array, dtype: str) -> Array:
    """By numpy, through the signed integer that holds the type."""
    with np.errstate(invalid="ignore"):
        if dtype == "uint64":
            above = (x >= 2.0**63) & (x < 2.0**64)
            high = np.where(above, x, 0).astype("uint64")
            return np.where(x >= 2.0**63, high, x.astype("int64").astype("uint64"))
        return x.astype("int64" if dtype in ("int64", "uint32") else "int32").astype(dtype)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_every_float_becomes_what_numpy_makes_of_it(dtype: str) -> None:
    codes = [helper.np_dtype_to_tensor_dtype(np.dtype(name)) for name in INTEGERS]
    nodes = [
        helper.make_node("Cast", ["x"], [name], to=code)
        for name, code in zip(INTEGERS, codes, strict=True)
    ]
    machine, every = build(model_of(nodes, {"x": f"{dtype}[n]"})), floats(dtype)
    for x in (every, every[:1], every[5:6], np.tile(every, 3), every[:0]):
        for name, got in zip(INTEGERS, machine.run({"x": x}), strict=True):
            wide = x.astype("float32") if dtype == "float16" else x
            np.testing.assert_array_equal(got, convert_by_numpy(wide, name), err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3"])
def test_every_vector_unit_gives_the_same(target: str, tmp_path: Path) -> None:
    names = ("uint8", "int16", "uint32", "uint64")
    codes = [helper.np_dtype_to_tensor_dtype(np.dtype(name)) for name in names]
    nodes = [
        helper.make_node("Cast", ["x"], [name], to=code)
        for name, code in zip(names, codes, strict=True)
    ]
    folder = tmp_path / "b"
    options = {"verify": False, "profile": False}
    compile_model(
        model_of(nodes, {"x": "float32[n]"}), output=folder, target=target, options=options
    )
    x = floats("float32")
    for name, got in relaxd.load(folder).run({"x": x}).items():
        np.testing.assert_array_equal(got, convert_by_numpy(x, name), err_msg=name)


def test_what_is_clipped_to_the_type_stays_a_plain_cast() -> None:
    """Kernels of int8 recognise it."""
    codes = helper.np_dtype_to_tensor_dtype(np.dtype("int8"))

    def programs(low: float, shift: float) -> int:
        nodes = [
            helper.make_node("Max", ["x", "low"], ["above"]),
            helper.make_node("Min", ["above", "high"], ["clipped"]),
            helper.make_node("Round", ["clipped"], ["whole"]),
            helper.make_node("Add", ["whole", "shift"], ["shifted"]),
            helper.make_node("Cast", ["shifted"], ["y"], to=codes),
        ]
        numbers = {"low": low, "high": 127 - shift, "shift": shift}
        constants = {name: np.float32(value) for name, value in numbers.items()}
        model = model_of(nodes, {"x": "float32[n]"}, constants, outputs=["y"])
        functions = build(model).imported.module.functions
        return sum("convert" in gvar.name_hint for gvar in functions)

    assert programs(-128 - 3, 3) == 0
    assert programs(-128 - 4, 3) == 1
