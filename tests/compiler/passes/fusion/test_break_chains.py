"""Chains of functions in one kernel took for ever: TVM walks an expression as a tree."""

import numpy as np
import pytest
from tvm import relax

op = relax.op
LENGTH = 24
HALF = relax.const(np.float32(0.5))
LINKS = {
    "bent": (lambda x: op.tanh(op.add(x, HALF)), lambda x: np.tanh(x + np.float32(0.5))),
    "gated": (lambda x: op.multiply(x, op.sigmoid(x)), lambda x: x / (1 + np.exp(-x))),
    "doubled": (lambda x: op.multiply(op.add(x, x), HALF), lambda x: x),
}


@pytest.mark.parametrize("name", LINKS)
def test_a_chain_of_any_length(name, compile_graph):
    link, exact = LINKS[name]

    def graph(b, x):
        for _ in range(LENGTH - 1):
            x = b.emit(link(x))
        return link(x)

    x = want = np.linspace(-9, 9, 37, dtype="float32")
    for _ in range(LENGTH):
        want = exact(want)
    model = compile_graph(graph, {"x": (("n",), "float32")})
    np.testing.assert_allclose(model(x), want, rtol=1e-5, atol=1e-7)
