import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tvm import relax

from tests.compiler.conftest import HOST
from tests.compiler.passes.assembly import kernels

op = relax.op
_INTERLEAVED = re.compile(r"\sv?p?unpck[lh]|\szip[12]\s")

CASES: dict[str, Any] = {
    "channels last": (("n", 24, "m"), [0, 2, 1], "float32"),
    "channels first": (("n", "m", 20), [0, 2, 1], "float32"),
    "both open": (("n", "m"), [1, 0], "float32"),
    "bytes": (("n", 33, "m"), [0, 2, 1], "uint8"),
    "doubles between others": (("n", 3, "m", 18), [0, 3, 1, 2], "float64"),
    "halves": (("n", "m"), [1, 0], "float16"),
    "integers of 16 bits, a short axis": (("n", 12, "m"), [0, 2, 1], "int16"),
    "a short axis that is read": (("n", "m", 5), [0, 2, 1], "float32"),
    "windows": (("n", 49, "m"), [2, 0, 1], "int32"),
}


@pytest.mark.parametrize("name", CASES)
def test_every_extent(name, compile_graph, draw):
    shape, axes, dtype = CASES[name]
    model = compile_graph(lambda builder, x: op.permute_dims(x, axes), {"x": (shape, dtype)})
    for n, m in [(1, 1), (2, 7), (3, 16), (1, 65), (17, 15), (1, 130), (67, 79), (80, 81)]:
        x = (100 * draw.random([{"n": n, "m": m}.get(axis, axis) for axis in shape])).astype(dtype)
        np.testing.assert_array_equal(model(x), x.transpose(axes))


def test_elements_are_turned_in_registers(assembly_for):
    code = assembly_for(
        lambda builder, x: op.permute_dims(x, [1, 0]), {"x": (("n", 64), "float32")}, HOST
    )
    (kernel,) = (code for name, code in kernels(code).items() if "transpose" in name)
    assert any(_INTERLEAVED.search(line) for line in kernel.lines)
    assert not kernel.spills()


def test_what_is_fused_with_it(compile_graph, draw):
    bias = draw.random((20, 1)).astype("float32")

    def graph(builder, x, y):
        moved = op.permute_dims(op.nn.relu(x), [0, 2, 1])
        return op.add(op.multiply(moved, y), relax.const(bias))

    model = compile_graph(
        graph, {"x": (("n", "m", 20), "float32"), "y": (("n", 20, "m"), "float32")}
    )
    for n, m in [(1, 3), (2, 16), (1, 37)]:
        x, y = (
            draw.standard_normal((n, m, 20)).astype("float32"),
            draw.standard_normal((n, 20, m)).astype("float32"),
        )
        np.testing.assert_allclose(
            model(x, y), np.maximum(x, 0).transpose(0, 2, 1) * y + bias, rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_16_bit_floats(dtype, compile_graph, draw):
    def graph(builder, x):
        permuted = builder.emit(op.permute_dims(builder.emit(op.astype(x, dtype)), [0, 2, 1]))
        return op.astype(permuted, "float32")

    model = compile_graph(graph, {"x": (("n", 20, "m"), "float32")})
    for n, m in [(1, 1), (2, 17), (3, 64)]:
        x = draw.standard_normal((n, 20, m)).astype("float32")
        want = x.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype).astype("float32")
        np.testing.assert_array_equal(model(x), want.transpose(0, 2, 1))
