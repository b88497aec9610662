import math

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx
from tvm.ir.prim import expr as prim

from compiler.tir.exprs import const, load, nodes
from compiler.tir.vecmath import exp_up_to_0, vectorize_calls

op = relax.op
VALUES = np.concatenate(
    [
        np.linspace(-100, 100, 4001),
        np.linspace(-1, 1, 2001),
        [1e-20, -1e-20, 0.0, 88.7, 88.72, 88.72281, 88.72283],
    ]
).astype("float32")
SPECIAL = np.array([np.nan, np.inf, -np.inf] * 5, "float32")
CASES = {
    "exp": (op.exp, math.exp),
    "tanh": (op.tanh, math.tanh),
    "erf": (op.erf, math.erf),
    "sigmoid": (op.sigmoid, lambda v: 1 / (1 + math.exp(-v))),
}


@pytest.mark.parametrize("name", CASES)
def test_close_to_the_exact_value(name, compile_graph):
    function, exact = CASES[name]
    model = compile_graph(lambda b, x: function(x), {"x": (("n",), "float32")})
    values = VALUES[VALUES < 88.72284] if name == "exp" else VALUES
    want = np.array([exact(float(v)) for v in values])
    np.testing.assert_allclose(model(values), want, rtol=1e-6, atol=1e-37)
    for sign in (1, -1):
        got = model(sign * SPECIAL)
        assert np.isnan(got[::3]).all()
        limits = {"exp": (np.inf, 0), "tanh": (1, -1), "erf": (1, -1), "sigmoid": (1, 0)}[name]
        np.testing.assert_allclose(got[1::3], limits[0] if sign > 0 else limits[1], rtol=1e-6)
        np.testing.assert_allclose(got[2::3], limits[1] if sign > 0 else limits[0], rtol=1e-6)


def _units_off(got, want):
    """How far off float32 results are, in units of the last place of the exact ones."""
    return np.abs(got - want) / np.spacing(np.abs(want).astype("float32")).astype("float64")


def _floats(low, high):
    """Every 997th float32 of a magnitude from 2^-14 on between two bounds."""
    small = np.float32(2.0**-14).view("int32")
    ends = [np.float32(abs(bound)).view("int32") for bound in (low, high)]
    negative, positive = (
        np.arange(int(small), int(end), 997, dtype="int32").view("float32") for end in ends
    )
    return np.concatenate([-negative, positive])


# With and without fused multiply-add; measured over all floats exp is up to 0.90 and 1.18 off.
@pytest.mark.parametrize(
    ("name", "values", "most", "mean"),
    [
        ("exp", _floats(-86.9, 88.72), 1.2, 0.265),
        ("sigmoid", _floats(-87.3, 87.3), 2.5, 0.43),
        ("swish", _floats(-88.7, 87.3), 2.5, 0.4),
    ],
)
def test_units_in_the_last_digit(name, values, most, mean, compile_graph):
    functions = {"exp": op.exp, "sigmoid": op.sigmoid, "swish": lambda x: x * op.sigmoid(x)}
    model = compile_graph(lambda b, x: functions[name](x), {"x": (("n",), "float32")})
    x = values.astype("float64")
    want = np.exp(x) if name == "exp" else (x if name == "swish" else 1) / (1 + np.exp(-x))
    off = _units_off(model(values).astype("float64"), want)
    assert off.max() < most
    assert off.mean() < mean


@pytest.mark.parametrize("mcpu", ["", tvm.target.codegen.llvm_get_system_cpu()])
def test_exp_up_to_0(mcpu):
    """Over every 997th float32 between 0 and -300, with and without fused multiply-add."""
    x = np.arange(0, np.float32(300).view("int32"), 997, dtype="int32").view("float32")
    inputs = np.concatenate([-x, [-0.0, -np.inf, np.nan, -3.4e38, -87.5]]).astype("float32")
    inputs = np.concatenate([inputs, np.array([0x7FC00001, 0xFFC001FF], "uint32").view("float32")])
    data = te.placeholder([len(inputs)], "float32")
    powers = te.compute([len(inputs)], lambda i: exp_up_to_0(data[i]))
    host = tvm.target.Target({"kind": "llvm"} | ({"mcpu": mcpu} if mcpu else {}))
    kernel = tvm.compile(te.create_prim_func([data, powers]), target=host)
    result = tvm.runtime.empty([len(inputs)], "float32")
    kernel(tvm.runtime.tensor(inputs), result)
    got, want = result.numpy().astype("float64"), np.exp(inputs.astype("float64"))
    normal = inputs >= -87.3
    off = np.abs(got - want)[normal] / want[normal]
    assert off.max() < 4e-6
    assert off[inputs[normal] >= -5].max() < 4e-7
    assert (got[inputs < -87.7] == 0).all()
    assert (got[(inputs < -87.3) & (inputs >= -87.7)] < 2e-38).all()
    assert (got[inputs == 0] == 1).all()
    np.testing.assert_array_equal(np.isnan(got), np.isnan(inputs))


@pytest.mark.parametrize("scale", [1.0, 1.702, -0.5])
@pytest.mark.parametrize("swapped", [False, True])
def test_swish(scale, swapped, compile_graph):
    def swish(b, x):
        gate = op.sigmoid(x if scale == 1 else x * relax.const(np.float32(scale)))
        return op.multiply(gate, x) if swapped else op.multiply(x, gate)

    model = compile_graph(swish, {"x": (("n",), "float32")})
    argument = (np.float32(scale) * VALUES).astype("float64")
    want = VALUES / (1 + np.exp(-argument))
    np.testing.assert_allclose(model(VALUES), want, rtol=1e-6, atol=4e-37)
    # As of the product: an infinite number times the sigmoid 0 is NaN.
    edges = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 3e38, -3e38, 1e-30, -1e-30], "float32")
    with np.errstate(over="ignore", invalid="ignore"):
        want = edges * (1 / (1 + np.exp(-np.float32(scale) * edges)))
    got = model(edges)
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert (np.signbit(got) == np.signbit(want))[~np.isnan(want)].all()


def test_only_swish_is_a_quotient():
    x, y = (load(tirx.decl_buffer([const(8)], "float32", name=name), [0]) for name in "xy")
    kinds = {
        prim.Div: [x * tirx.sigmoid(x), tirx.sigmoid(x + y) * y],
        prim.Mul: [y * tirx.sigmoid(x), (x + y) * tirx.sigmoid(x)],
    }
    for kind, values in kinds.items():
        for value in values:
            quotients = [node for node in nodes(vectorize_calls(value)) if type(node) is prim.Div]
            assert len(quotients) == 1
            assert type(vectorize_calls(value)) is kind


@pytest.mark.parametrize("divisor", [math.sqrt(2), -0.3, 1e-30, 3e38, 1e-42])
def test_erf_of_a_quotient(divisor, compile_graph):
    model = compile_graph(
        lambda b, x: op.erf(op.divide(x, relax.const(np.float32(divisor)))),
        {"x": (("n",), "float32")},
    )
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        want = np.array([math.erf(v) for v in VALUES / np.float32(divisor)])
    # Where the quotient or the reciprocal is too small for a normal number, processors may take it
    # for 0.
    np.testing.assert_allclose(model(VALUES), want, rtol=1e-6, atol=2e-37)
