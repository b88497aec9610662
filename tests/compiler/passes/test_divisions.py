"""Division and remainder by sums of dims, through the product's own passes: in extents, in numbers
and in how a reshape is read.
"""

import numpy as np
from onnx import helper

from tests.compiler.ir.onnx.running import assert_close, model_of, normal, session_of
from tests.compiler.passes.lower.graph.test_name_checks import build

N = helper.make_node
CONSTANTS = {"0": np.array(0), "1": np.array(1), "100": np.array(100), "[-1]": np.array([-1])}


def test_divisors_that_add_up_dims() -> None:
    nodes = [
        N("Concat", ["x", "z"], ["c"], axis=1),
        N("Shape", ["c"], ["shape"]),
        N("Gather", ["shape", "1"], ["sum"]),
        N("Div", ["100", "sum"], ["quotient"]),
        N("Mod", ["100", "sum"], ["rest"]),
        N("Range", ["0", "quotient", "1"], ["a"]),
        N("Range", ["0", "rest", "1"], ["b"]),
        N("Div", ["i", "sum"], ["divided"]),
        N("Mod", ["i", "sum"], ["remainder"]),
        N("Transpose", ["c"], ["t"]),
        N("Reshape", ["t", "[-1]"], ["flat"]),
        N("Relu", ["flat"], ["positive"]),
        N("Reshape", ["positive", "shape"], ["back"]),
    ]
    outputs = ["quotient", "rest", "a", "b", "divided", "remainder", "flat", "back"]
    model = model_of(
        nodes,
        {"x": "float32[n,m]", "z": "float32[n,k]", "i": "int64[j]"},
        CONSTANTS,
        outputs=outputs,
    )
    built, session = build(model), session_of(model)
    for n, m, k in ((1, 1, 1), (2, 3, 4), (7, 2, 1), (3, 40, 61)):
        inputs = {"x": normal(n, m), "z": normal(n, k), "i": np.arange(0, 9)}
        assert_close(built.run(inputs), session.run(None, inputs), outputs)
