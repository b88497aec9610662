import numpy as np
import pytest
import tvm
from onnx import helper
from tvm import relax, te

from compiler.passes.layout.channels_last import ChannelsLast
from tests.compiler.conftest import build_module
from tests.compiler.ir.onnx.running import build, model_of

op = relax.op
W = np.random.default_rng(3).standard_normal((8, 8, 3, 3)).astype("float32")


def conv(x):
    return op.nn.conv2d(x, relax.const(W), padding=(1, 1))


def ops_of(module):
    """The operators of main, in order."""
    operators = []
    for block in module["main"].body.blocks:
        operators += [
            binding.value.op for binding in block.bindings if isinstance(binding.value, relax.Call)
        ]
    return [str(getattr(one, "name", one)).removeprefix("relax.") for one in operators]


def elementwise(builder, x):
    y = builder.emit(conv(x))
    return conv(builder.emit(op.nn.relu(builder.emit(op.add(y, relax.const(W[0, 0, 0, 0]))))))


def residual(builder, x):
    y = builder.emit(conv(x))
    return builder.emit(op.add(y, builder.emit(conv(y))))


def squeeze(builder, x):
    y = builder.emit(conv(x))
    scale = builder.emit(op.sigmoid(builder.emit(op.mean(y, [2, 3], keepdims=True))))
    return builder.emit(op.multiply(y, scale))


def pool(builder, x):
    y = builder.emit(op.nn.max_pool2d(builder.emit(conv(x)), (2, 2), (2, 2)))
    return builder.emit(op.mean(y, [2, 3]))


def concat(builder, x):
    y = builder.emit(conv(x))
    return conv(builder.emit(op.strided_slice(builder.emit(op.concat([y, y], 1)), [1], [0], [8])))


def upsample(builder, x):
    def twice(t):
        n, c, h, w = t.shape
        return te.compute(
            (n, c, h * 2, w * 2), lambda n, c, h, w: t[n, c, h // 2, w // 2], name="twice"
        )

    return builder.emit(conv(builder.emit_te(twice, builder.emit(conv(x)))))


def flatten(builder, x):
    y = builder.emit(conv(x))
    n, c, h, w = x.ty.shape.values
    rows = builder.emit(
        op.permute_dims(builder.emit(op.reshape(y, relax.ShapeExpr([n, c, h * w]))), [0, 2, 1])
    )
    return builder.emit(op.mean(rows, [1]))


INSIDE = {
    elementwise: ["permute_dims", "nn.conv2d", "add", "nn.relu", "nn.conv2d", "permute_dims"],
    residual: ["permute_dims", "nn.conv2d", "nn.conv2d", "add", "permute_dims"],
    squeeze: ["permute_dims", "nn.conv2d", "mean", "sigmoid", "multiply", "permute_dims"],
    pool: ["permute_dims", "nn.conv2d", "nn.max_pool2d", "mean"],
    upsample: ["permute_dims", "nn.conv2d", "call_tir", "nn.conv2d", "permute_dims"],
    flatten: ["permute_dims", "nn.conv2d", "reshape", "mean"],
}


@pytest.mark.parametrize("graph", INSIDE, ids=lambda graph: graph.__name__)
def test_transposes_stay_at_the_ends(graph):
    after = ChannelsLast().apply(build_module(graph, {"x": (("n", 8, "h", "w"), "float32")}))
    relax.analysis.well_formed(after)
    assert ops_of(after) == INSIDE[graph]


def test_an_elementwise_chain_between_two_convolutions():
    def after(builder, x):
        weight = relax.const(np.ascontiguousarray(W.transpose(0, 2, 3, 1)))
        layouts = {
            "padding": (1, 1),
            "data_layout": "NHWC",
            "kernel_layout": "OHWI",
            "out_layout": "NHWC",
        }
        y = op.nn.conv2d(op.permute_dims(x, [0, 2, 3, 1]), weight, **layouts)
        y = op.nn.conv2d(op.nn.relu(op.add(y, relax.const(W[0, 0, 0, 0]))), weight, **layouts)
        return op.permute_dims(y, [0, 3, 1, 2])

    inputs = {"x": (("n", 8, "h", "w"), "float32")}
    tvm.ir.assert_structural_equal(
        ChannelsLast().apply(build_module(elementwise, inputs)), build_module(after, inputs)
    )


@pytest.mark.parametrize("graph", [*INSIDE, concat], ids=lambda graph: graph.__name__)
def test_the_numbers_stay_the_same(graph, draw):
    module = build_module(graph, {"x": (("n", 8, "h", "w"), "float32")})
    image = tvm.runtime.tensor(draw.standard_normal((2, 8, 6, 4)).astype("float32"))
    results = [
        relax.VirtualMachine(tvm.compile(one, "llvm"), tvm.cpu())["main"](image).numpy()
        for one in (module, ChannelsLast().apply(module))
    ]
    np.testing.assert_allclose(results[0], results[1], rtol=1e-4, atol=1e-4)


def test_a_transpose_of_the_model_before_a_convolution_becomes_part_of_the_other_one():
    def graph(builder, x):
        return conv(builder.emit(op.permute_dims(x, [0, 2, 1, 3])))

    after = ChannelsLast().apply(build_module(graph, {"x": (("n", "h", 8, "w"), "float32")}))
    relax.analysis.well_formed(after)
    assert ops_of(after) == ["permute_dims", "nn.conv2d", "permute_dims"]
    first = after["main"].body.blocks[0].bindings[0].value
    assert list(map(int, first.attrs.axes)) == [0, 1, 3, 2]


def test_volumes_keep_their_channels_last_too():
    weight = np.random.default_rng(4).standard_normal((8, 8, 3, 3, 3)).astype("float32")

    def graph(builder, x):
        y = builder.emit(op.nn.conv3d(x, relax.const(weight), padding=(1,) * 6))
        gate = builder.emit(op.sigmoid(builder.emit(op.mean(y, [2, 3, 4], keepdims=True))))
        return op.nn.conv3d(builder.emit(op.multiply(y, gate)), relax.const(weight))

    after = ChannelsLast().apply(build_module(graph, {"x": (("n", 8, "d", "h", "w"), "float32")}))
    relax.analysis.well_formed(after)
    assert ops_of(after) == [
        "permute_dims",
        "nn.conv3d",
        "mean",
        "sigmoid",
        "multiply",
        "nn.conv3d",
        "permute_dims",
    ]


def test_a_match_cast_keeps_the_image_where_it_is():
    n, h, w, k = (tvm.tirx.Var(name, "int64") for name in "nhwk")
    x = relax.Var("x", relax.TensorType((n, 8, h, w), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        y = builder.emit(conv(x))
        unknown = builder.match_cast(y, relax.TensorType(ndim=4, dtype="float32"))
        cast = builder.match_cast(unknown, relax.TensorType((n, 8, k, w), "float32"))
        builder.emit_func_output(builder.emit(conv(cast)))
    after = ChannelsLast().apply(builder.get())
    relax.analysis.well_formed(after)
    casts = [
        binding
        for block in after["main"].body.blocks
        for binding in block.bindings
        if isinstance(binding, relax.MatchCast)
    ]
    assert [str(axis) for axis in casts[-1].ty.shape.values] == ["n", "k", "w", "T.int64(8)"]


def test_blocks_still_end_where_a_dim_is_defined():
    module = build(
        model_of([helper.make_node("NonZero", ["x"], ["z"])], {"x": "float32[n]"})
    ).imported.module
    assert [
        isinstance(block, relax.DataflowBlock)
        for block in ChannelsLast().apply(module)["main"].body.blocks
    ] == [True, False, True]
