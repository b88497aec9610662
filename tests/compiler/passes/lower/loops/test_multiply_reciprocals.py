"""Divisions of floats by constants give the floats that dividing gives."""

import numpy as np
import pytest
import tvm_ffi
from onnx import helper
from tvm import tirx

from compiler import targets
from compiler.codegen.generate import generate
from compiler.codegen.side_by_side import compile_each
from compiler.ir import import_model
from compiler.passes.manager import lower
from compiler.tir.building import serial, statements, store, vectorize
from compiler.tir.exprs import const
from relaxd.contract.request import CompileRequest
from tests.compiler.conftest import HOST, assembly
from tests.compiler.ir.onnx.running import model_of
from tests.compiler.passes.lower.loops.test_truncate_divisions import program

LANES = 16
DIVISORS = (6.0, 3.0, -10.0, 1.0000001, 255.0, 1.4142135, 2.0**40 + 2.0**20, 0.7)


def divide(x: np.ndarray, divisor: float) -> np.ndarray:
    """x / divisor by a compiled kernel."""
    source, result = (tirx.decl_buffer([const(x.size)], "float32", name) for name in "xy")
    with statements() as body, serial(x.size // LANES) as strip, vectorize(LANES) as lane:
        position = strip * LANES + lane
        store(result, source[position] / tirx.FloatImm("float32", divisor), position)
    (compiled,) = compile_each(program([source, result], body.stmt), HOST)
    y = np.empty_like(x)
    compiled["divide"](*map(tvm_ffi.from_dlpack, (x, y)))
    return y


@pytest.mark.parametrize("divisor", DIVISORS)
def test_quotients_of_every_mantissa_are_those_of_ieee(divisor: float) -> None:
    """In a binade of each sign; in others quotients are the same times a power of two."""
    bits = np.arange(1 << 23, dtype=np.uint32)
    x = np.concatenate([bits | 127 << 23, bits | 0b1_1000_0001 << 23]).view(np.float32)
    np.testing.assert_array_equal(divide(x, divisor), x / np.float32(divisor))


@pytest.mark.parametrize("divisor", DIVISORS)
def test_quotients_of_all_magnitudes(divisor: float) -> None:
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, np.finfo(np.float32).max, 1.0, -1.0]
    powers = np.ldexp(np.float32(1.7), np.arange(-149, 128)[: 17 * LANES - len(special)])
    x = np.concatenate([special, powers]).astype(np.float32)
    with np.errstate(all="ignore"):
        expected = x / np.float32(divisor)
    quotients = divide(x, divisor)
    np.testing.assert_array_equal(np.isnan(quotients), np.isnan(expected))
    np.testing.assert_array_equal(np.signbit(quotients[:2]), np.signbit(expected[:2]))
    exact = np.isnan(expected) | (np.abs(expected) > 2.0**-100) | (expected == 0)
    np.testing.assert_array_equal(quotients[exact], expected[exact])
    np.testing.assert_array_max_ulp(quotients[~exact], expected[~exact], 1)


@pytest.mark.parametrize(
    ("target", "divides"), [("x86-64-v2", True), ("x86-64-v3", False), ("aarch64", False)]
)
def test_a_hard_swish_divides_only_where_there_is_no_multiply_add(
    target: str, divides: bool
) -> None:
    nodes = [
        helper.make_node("Add", ["x", "three"], ["shifted"]),
        helper.make_node("Clip", ["shifted", "zero", "six"], ["clipped"]),
        helper.make_node("Mul", ["x", "clipped"], ["product"]),
        helper.make_node("Div", ["product", "six"], ["y"]),
    ]
    constants = {"three": np.float32(3), "zero": np.float32(0), "six": np.float32(6)}
    model = model_of(nodes, {"x": "float32[n,64]"}, constants)
    resolved = targets.resolve(target)
    imported = import_model(model, CompileRequest.of())
    text = assembly(generate(lower(imported.module, resolved, imported.ranges), resolved))
    assert ("divps" in text or "fdiv" in text) == divides
