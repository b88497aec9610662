import math

import numpy as np
import pytest
from tvm import relax

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
