import numpy as np
import pytest
import tvm
from tvm import relax

from compiler.passes.layout.channels_last import ChannelsLast
from compiler.passes.layout.rows_as_images import RowsAsImages
from tests.compiler.conftest import build_module
from tests.compiler.passes.layout.test_channels_last import ops_of

op = relax.op
W = np.random.default_rng(5).standard_normal((8, 8, 1, 3)).astype("float32")
SCALE = np.random.default_rng(6).standard_normal((1, 8, 1)).astype("float32")


def conv(builder, x):
    """A one-dimensional convolution as the importer makes it."""
    image = builder.emit(op.expand_dims(x, 2))
    return builder.emit(
        op.squeeze(builder.emit(op.nn.conv2d(image, relax.const(W), padding=(0, 1))), [2])
    )


def chain(builder, x):
    y = conv(builder, x)
    gate = builder.emit(op.sigmoid(builder.emit(op.multiply(y, relax.const(SCALE)))))
    return conv(builder, builder.emit(op.multiply(y, gate)))


def residual(builder, x):
    y = conv(builder, x)
    return conv(builder, builder.emit(op.add(y, x)))


def concat(builder, x):
    y = conv(builder, x)
    return builder.emit(op.strided_slice(builder.emit(op.concat([y, y], 1)), [1], [4], [12]))


def pool(builder, x):
    return builder.emit(op.mean(conv(builder, x), [2]))


def transpose(builder, x):
    return builder.emit(op.permute_dims(conv(builder, x), [0, 2, 1]))


GRAPHS = [chain, residual, concat, pool, transpose]


def run_passes(module):
    return ChannelsLast().apply(RowsAsImages().apply(module))


def test_rows_stay_images_between_convolutions():
    operators = ops_of(run_passes(build_module(chain, {"x": (("n", 8, "w"), "float32")})))
    assert [name for name in operators if name not in ("multiply", "sigmoid")] == [
        "expand_dims",
        "permute_dims",
        "nn.conv2d",
        "nn.conv2d",
        "reshape",
        "permute_dims",
    ]


def test_a_transpose_behind_a_row_is_what_the_kernel_computes():
    operators = ops_of(run_passes(build_module(transpose, {"x": (("n", 8, "w"), "float32")})))
    assert operators == ["expand_dims", "permute_dims", "nn.conv2d", "reshape"]


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.__name__)
def test_the_numbers_stay_the_same(graph, draw):
    module = build_module(graph, {"x": (("n", 8, "w"), "float32")})
    after = run_passes(module)
    relax.analysis.well_formed(after)
    rows = tvm.runtime.tensor(draw.standard_normal((2, 8, 7)).astype("float32"))
    results = [
        relax.VirtualMachine(tvm.compile(one, "llvm"), tvm.cpu())["main"](rows).numpy()
        for one in (module, after)
    ]
    np.testing.assert_allclose(results[0], results[1], rtol=1e-4, atol=1e-4)
