import numpy as np
import pytest
from tvm import relax

op = relax.op


@pytest.mark.parametrize(("depth", "columns"), [(1, 1), (7, 16), (48, 17), (64, 33), (2100, 24)])
def test_constant_weights_with_epilogue_for_every_row_count(depth, columns, compile_graph, draw):
    weight = draw.standard_normal((depth, columns)).astype("float32")
    bias = draw.standard_normal(columns).astype("float32")

    def graph(builder, x, residual):
        return op.add(op.tanh(op.add(op.matmul(x, relax.const(weight)), relax.const(bias))), residual)

    model = compile_graph(graph, {"x": (("b", "s", depth), "float32"), "residual": (("b", "s", columns), "float32")})
    for b, s in [(1, 1), (1, 2), (1, 3), (1, 5), (1, 6), (1, 7), (3, 4), (5, 19), (2, 97), (1, 211), (0, 4), (3, 0)]:
        x = draw.standard_normal((b, s, depth)).astype("float32") / np.float32(np.sqrt(depth))
        residual = draw.standard_normal((b, s, columns)).astype("float32")
        want = np.tanh(x.astype("float64") @ weight + bias) + residual
        np.testing.assert_allclose(model(x, residual), want, rtol=1e-4, atol=1e-4)


def test_both_sides_dynamic_for_every_extent(compile_graph, draw):
    def graph(builder, x, y, mask):
        return op.add(op.multiply(op.matmul(x, y), relax.const(0.5, "float32")), mask)

    inputs = {"x": (("b", 3, "m", "k"), "float32"), "y": (("b", 3, "k", "n"), "float32"), "mask": (("b", 1, 1, "n"), "float32")}
    model = compile_graph(graph, inputs)
    for b, m, k, n in [
        (1, 1, 1, 1),
        (2, 4, 8, 16),
        (1, 5, 3, 7),
        (1, 3, 31, 8),
        (2, 7, 32, 9),
        (1, 9, 5, 15),
        (1, 8, 64, 17),
        (3, 33, 13, 67),
        (0, 3, 5, 7),
        (2, 0, 3, 4),
        (2, 5, 3, 0),
        (2, 3, 0, 4),
    ]:
        x, y, mask = (draw.standard_normal(shape).astype("float32") for shape in [(b, 3, m, k), (b, 3, k, n), (b, 1, 1, n)])
        want = x.astype("float64") @ y * 0.5 + mask
        np.testing.assert_allclose(model(x, y, mask), want, rtol=1e-4, atol=1e-4)


def test_rows_one_more_than_a_product_of_dims(compile_graph, draw):
    """Relax writes such an extent of a concatenation as 1 + n, tensor programs as n + 1."""
    weight = draw.standard_normal((8, 16)).astype("float32")

    def graph(builder, token, patches):
        b, h, w, depth = patches.ty.shape.values
        rows = op.concat([token, op.reshape(patches, relax.ShapeExpr([b, h * w, depth]))], axis=1)
        normal = op.nn.layer_norm(rows, relax.const(np.ones(8, "float32")), relax.const(np.zeros(8, "float32")), axes=[-1])
        return op.add(op.matmul(normal, relax.const(weight)), relax.const(np.ones(16, "float32")))

    model = compile_graph(graph, {"token": (("b", 1, 8), "float32"), "patches": (("b", "h", "w", 8), "float32")})
    for b, h, w in [(1, 1, 1), (2, 3, 5), (3, 7, 1)]:
        token, patches = draw.standard_normal((b, 1, 8)).astype("float32"), draw.standard_normal((b, h, w, 8)).astype("float32")
        rows = np.concatenate([token, patches.reshape(b, h * w, 8)], 1).astype("float64")
        normal = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + 1e-5)
        np.testing.assert_allclose(model(token, patches), normal @ weight + 1, rtol=1e-4, atol=1e-4)
