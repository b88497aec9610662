import numpy as np
import pytest
import tvm
from tvm import relax, te

from compiler.ir import import_model
from compiler.passes.cpu.families.attention.program import STAGES
from compiler.passes.fusion.fuse_attention import FuseAttention
from compiler.passes.layout.channels_last import ChannelsLast
from compiler.passes.manager import to_kernels
from compiler.tir.stages import read_program
from relaxd.contract.request import CompileRequest
from tests.compiler.conftest import HOST, build_module
from tests.compiler.ir.onnx.operators.test_group_query import feed, model_of
from tests.compiler.passes.lowered import assert_like_onnxruntime

op = relax.op


def heads(builder, x, size=16):
    """[batch, s, heads * size] as [batch, heads, s, size]."""
    return builder.emit(op.permute_dims(split(builder, x, size), [0, 2, 1, 3]))


def split(builder, x, size=16):
    """[batch, s, heads * size] as [batch, s, heads, size]."""
    b, s, width = x.ty.shape.values
    return builder.emit(op.reshape(x, relax.ShapeExpr([b, s, int(width) // size, size])))


def attend(builder, scores, v):
    return builder.emit(op.matmul(builder.emit(op.nn.softmax(scores, -1)), v))


def attend_masked(builder, q, k, v, mask):
    """Heads split from one axis, a scale and a mask that is added, heads joined again."""
    q, k, v = (heads(builder, x) for x in (q, k, v))
    scores = builder.emit(op.matmul(q, builder.emit(op.permute_dims(k, [0, 1, 3, 2]))))
    scores = builder.emit(op.add(builder.emit(op.multiply(scores, relax.const(0.25))), mask))
    return builder.emit(op.permute_dims(attend(builder, scores, v), [0, 2, 1, 3]))


def plain(builder, q, k, v):
    return builder.emit(
        attend(builder, builder.emit(op.matmul(q, builder.emit(op.permute_dims(k, [0, 2, 1])))), v)
    )


def attend_selected(builder, q, k, v, keep):
    """A mask that chooses, as exporters of newer models write it."""
    scores = builder.emit(
        op.divide(
            builder.emit(op.matmul(q, builder.emit(op.permute_dims(k, [0, 2, 1])))),
            relax.const(4.0),
        )
    )
    return attend(builder, builder.emit(op.where(keep, scores, relax.const(-1e9))), v)


def exact(q, k, v, change):
    """Attention over the last two axes in float64."""
    scores = change(q.astype("float64") @ np.swapaxes(k.astype("float64"), -1, -2))
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True) @ v.astype("float64")


SIZES = [
    (1, 1, 1),
    (1, 1, 37),
    (2, 2, 3),
    (1, 3, 15),
    (1, 4, 16),
    (2, 5, 17),
    (1, 64, 31),
    (1, 65, 33),
    (1, 128, 17),
    (1, 131, 48),
    (3, 67, 130),
    (2, 1, 256),
    (1, 2, 257),
    (3, 1, 600),
]
"""(batch, queries, keys), around the kernel's groups of rows, panels and tasks."""


def test_heads_and_an_added_mask(compile_graph, draw):
    shapes = {
        "q": ("b", "m", 48),
        "k": ("b", "n", 48),
        "v": ("b", "n", 48),
        "mask": ("b", 1, 1, "n"),
    }
    model = compile_graph(
        attend_masked, {name: (shape, "float32") for name, shape in shapes.items()}
    )
    for b, m, n in SIZES:
        q, k, v = (draw.standard_normal((b, extent, 48)).astype("float32") for extent in (m, n, n))
        mask = np.where(draw.random((b, 1, 1, n)) < 0.3, np.float32(-3.4e38), np.float32(0))
        split = (x.reshape(b, -1, 3, 16).transpose(0, 2, 1, 3) for x in (q, k, v))
        one, two, three = split
        want = exact(one, two, three, lambda s, mask=mask: s * 0.25 + mask).transpose(0, 2, 1, 3)
        if (mask < 0).all(-1).any():
            continue  # a row of equal scores: float32 swallows their differences
        np.testing.assert_allclose(model(q, k, v, mask), want, rtol=1e-4, atol=1e-5)


def test_a_mask_that_chooses(compile_graph, draw):
    shapes = {"q": ("b", "m", 16), "k": ("b", "n", 16), "v": ("b", "n", 16)}
    model = compile_graph(
        attend_selected,
        {
            **{name: (shape, "float32") for name, shape in shapes.items()},
            "keep": (("m", "n"), "bool"),
        },
    )
    for b, m, n in SIZES:
        q, k, v = (draw.standard_normal((b, extent, 16)).astype("float32") for extent in (m, n, n))
        keep = draw.random((m, n)) < 0.7
        want = exact(q, k, v, lambda s, keep=keep: np.where(keep, s / 4, -1e9))
        np.testing.assert_allclose(model(q, k, v, keep), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("depth", [4, 12, 24, 32, 48])
def test_keys_of_every_depth_are_laid_out(depth, compile_graph, draw):
    """In squares where whole vectors hold a key, else one by one; panels that keys do not fill."""
    shapes = {"q": ("b", "m", depth), "k": ("b", "n", depth), "v": ("b", "n", 16)}
    model = compile_graph(plain, {name: (shape, "float32") for name, shape in shapes.items()})
    for b, m, n in [(1, 9, 1), (2, 11, 7), (1, 9, 8), (3, 17, 31), (1, 40, 32), (9, 12, 33)]:
        q, k, v = (
            draw.standard_normal((b, extent, size)).astype("float32")
            for extent, size in ((m, depth), (n, depth), (n, 16))
        )
        want = exact(q, k, v, lambda scores: scores)
        np.testing.assert_allclose(model(q, k, v), want, rtol=1e-4, atol=1e-5)


def test_one_program_replaces_matmuls_softmax_and_transposes():
    def after(builder, q, k, v, mask):
        program = builder.add_func(fused["attention"], "attention")
        q, k, v = (split(builder, x) for x in (q, k, v))
        batch, heads, length, width = (q.ty.shape.values[axis] for axis in (0, 2, 1, 3))
        ty = relax.TensorType([batch, length, heads, width], "float32")
        return relax.call_tir(program, [q, k, v, relax.const(0.25), mask], ty)

    shapes = {
        "q": ("b", "m", 48),
        "k": ("b", "n", 48),
        "v": ("b", "n", 48),
        "mask": ("b", 1, 1, "n"),
    }
    inputs = {name: (shape, "float32") for name, shape in shapes.items()}
    fused = relax.transform.CanonicalizeBindings()(
        FuseAttention().apply(ChannelsLast().apply(build_module(attend_masked, inputs)))
    )
    tvm.ir.assert_structural_equal(
        fused, relax.transform.CanonicalizeBindings()(build_module(after, inputs))
    )
    program = read_program(fused["attention"])
    assert program is not None
    assert {stage.name for stage in program.stages} == set(STAGES)


def test_scores_that_others_read_are_left_alone():
    def shared(builder, q, k, v):
        scores = builder.emit(
            op.nn.softmax(
                builder.emit(op.matmul(q, builder.emit(op.permute_dims(k, [0, 2, 1])))), -1
            )
        )
        return builder.emit(
            op.add(
                builder.emit(op.matmul(scores, v)), builder.emit(op.sum(scores, -1, keepdims=True))
            )
        )

    shapes = {"q": ("b", "m", 16), "k": ("b", "n", 16), "v": ("b", "n", 16)}
    inputs = {name: (shape, "float32") for name, shape in shapes.items()}
    assert "attention" not in {
        gvar.name_hint for gvar in FuseAttention().apply(build_module(shared, inputs)).functions
    }
    assert "attention" in {
        gvar.name_hint for gvar in FuseAttention().apply(build_module(plain, inputs)).functions
    }


def test_the_matmuls_before_and_after_are_gone():
    shapes = {
        "q": ("b", "m", 48),
        "k": ("b", "n", 48),
        "v": ("b", "n", 48),
        "mask": ("b", 1, 1, "n"),
    }
    after = FuseAttention().apply(
        ChannelsLast().apply(
            build_module(
                attend_masked, {name: (shape, "float32") for name, shape in shapes.items()}
            )
        )
    )
    text = after["main"].script()
    assert "R.matmul" not in text
    assert "softmax" not in text
    assert "R.permute_dims" not in text


def test_a_transpose_that_takes_rows_apart_stays():
    def columns(builder, q, k, v):
        return op.permute_dims(plain(builder, q, k, v), [1, 2, 0])

    inputs = {
        "q": (("b", "m", 8), "float32"),
        "k": (("b", "n", 8), "float32"),
        "v": (("b", "n", 8), "float32"),
    }
    assert (
        FuseAttention()
        .apply(build_module(columns, inputs))["main"]
        .script()
        .count("R.permute_dims")
        == 1
    )


def unbound(builder, x):
    """Queries, keys and values from one tensor, taken apart by an axis that is transposed to the
    front; scales on two of them.
    """
    b, s, _ = x.ty.shape.values
    joint = builder.emit(
        op.permute_dims(
            builder.emit(op.reshape(x, relax.ShapeExpr([b, s, 3, 2, 8]))), [2, 0, 3, 1, 4]
        )
    )
    parts = [builder.emit(op.strided_slice(joint, [0], [index], [index + 1])) for index in range(3)]
    q, k, v = (builder.emit(op.squeeze(part, [0])) for part in parts)
    q = builder.emit(op.multiply(q, relax.const(0.5)))
    k = builder.emit(op.divide(builder.emit(op.permute_dims(k, [0, 1, 3, 2])), relax.const(1.25)))
    return attend(builder, builder.emit(op.matmul(q, k)), v)


def test_parts_and_scales_of_one_tensor_are_not_copied(compile_graph, draw):
    inputs = {"x": (("b", "s", 48), "float32")}
    after = FuseAttention().apply(build_module(unbound, inputs))["main"].script()
    assert not [
        name
        for name in ("permute_dims", "strided_slice", "squeeze", "multiply", "divide")
        if f"R.{name}" in after
    ]
    model = compile_graph(unbound, inputs)
    for b, _, s in SIZES:
        x = draw.standard_normal((b, s, 48)).astype("float32")
        q, k, v = x.reshape(b, s, 3, 2, 8).transpose(2, 0, 3, 1, 4)
        np.testing.assert_allclose(
            model(x), exact(q, k, v, lambda scores: scores * 0.4), rtol=1e-4, atol=1e-5
        )


def attend_grouped(builder, q, k, v):
    """Four heads of queries for two of keys and values, as exporters write it: an axis of one place
    is repeated, and joined.
    """
    return in_groups(builder, q, k, v, 4, 2, 8)


def in_groups(builder, q, k, v, heads, groups, size):
    share = heads // groups

    def repeated(x):
        b, n = x.ty.shape.values[0], x.ty.shape.values[2]
        apart = builder.emit(op.reshape(x, relax.ShapeExpr([b, groups, 1, n, size])))
        expand = builder.call_te(
            lambda a: te.compute(
                (a.shape[0], groups, share, a.shape[3], size),
                lambda i, g, _, j, d: a(i, g, 0, j, d),
            ),
            apart,
        )
        return builder.emit(op.reshape(builder.emit(expand), relax.ShapeExpr([b, heads, n, size])))

    scores = builder.emit(op.matmul(q, builder.emit(op.permute_dims(repeated(k), [0, 1, 3, 2]))))
    return attend(builder, scores, repeated(v))


def test_keys_that_heads_share_are_not_copied(compile_graph, draw):
    inputs = {
        "q": (("b", 4, "m", 8), "float32"),
        "k": (("b", 2, "n", 8), "float32"),
        "v": (("b", 2, "n", 8), "float32"),
    }
    fused = FuseAttention().apply(build_module(attend_grouped, inputs))
    assert [
        name for name in ("permute_dims", "reshape") if f"R.{name}" in fused["main"].script()
    ] == []
    assert fused["main"].script().count("R.call_tir") == 1
    model = compile_graph(attend_grouped, inputs)
    for b, m, n in SIZES:
        q = draw.standard_normal((b, 4, m, 8)).astype("float32")
        k, v = (draw.standard_normal((b, 2, n, 8)).astype("float32") for _ in range(2))
        wanted = exact(q, k.repeat(2, 1), v.repeat(2, 1), lambda scores: scores)
        np.testing.assert_allclose(model(q, k, v), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("heads", "groups", "size"), [(14, 2, 64), (9, 1, 24), (5, 5, 12), (33, 1, 6)]
)
def test_few_queries_of_many_heads(compile_graph, draw, heads, groups, size):
    """Heads that fill several tiles of registers, and keys that fill no block."""

    def graph(builder, q, k, v):
        return in_groups(builder, q, k, v, heads, groups, size)

    shapes = {"q": ("b", heads, "m", size)} | dict.fromkeys("kv", ("b", groups, "n", size))
    model = compile_graph(graph, {name: (shape, "float32") for name, shape in shapes.items()})
    for b, m, n in [
        (1, 1, 1),
        (2, 2, 7),
        (1, 1, 257),
        (1, 2, 16),
        (1, 9, 530),
        (2, 32, 255),
        (1, 33, 40),
    ]:
        q = draw.standard_normal((b, heads, m, size)).astype("float32")
        k, v = (draw.standard_normal((b, groups, n, size)).astype("float32") for _ in range(2))
        share = heads // groups
        wanted = exact(q, k.repeat(share, 1), v.repeat(share, 1), lambda scores: scores)
        np.testing.assert_allclose(model(q, k, v), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("function", [attend_masked, attend_selected])
def test_results_stay_outputs_of_their_block(function):
    shapes = {
        "q": ("b", "m", 48),
        "k": ("b", "n", 48),
        "v": ("b", "n", 48),
        "mask": ("b", 1, 1, "n"),
    }
    if function is attend_selected:
        shapes = {"q": ("b", "m", 16), "k": ("b", "n", 16), "v": ("b", "n", 16), "keep": ("m", "n")}
    inputs = {
        name: (shape, "bool" if name == "keep" else "float32") for name, shape in shapes.items()
    }
    fused = FuseAttention().apply(
        relax.transform.CanonicalizeBindings()(build_module(function, inputs))
    )
    relax.analysis.well_formed(fused)  # raises
    assert fused["main"].body.blocks[-1].bindings[-1].var.same_as(fused["main"].body.body)


@pytest.mark.timeout(60)
def test_operands_that_are_read_twice_are_searched_once():
    def graph(builder, scores, v):
        for _ in range(64):
            scores = builder.emit(op.add(scores, builder.emit(op.tanh(scores))))
        return op.matmul(builder.emit(op.nn.softmax(scores)), v)

    module = build_module(graph, dict.fromkeys(("scores", "v"), (("b", 8, 8), "float32")))
    tvm.ir.assert_structural_equal(FuseAttention().apply(module), module)


def test_heads_that_share_a_cache_are_read_where_they_lie():
    """GroupQueryAttention, whose cache has an extent that no tensor gives alone."""
    names = ("n", "s", "p")
    request = CompileRequest.of(dims=dict.fromkeys(names, (1, 64)))
    imported = import_model(model_of("q k v pk pv l t"), request)
    scheduled = to_kernels(imported.module, HOST, imported.ranges)
    kernels = {gvar.name_hint.rstrip("0123456789") for gvar in scheduled.get_global_vars()}
    assert "attention" in kernels
    assert "expand" not in kernels


@pytest.mark.parametrize("form", [{}, {"local_window_size": 70}], ids=["all", "window"])
def test_few_queries_by_parts_of_a_shared_cache(form):
    """Entries of one part and of several, some of whose parts the window or the end hides whole."""
    feeds = [
        feed([257], 1, 256),
        feed([600, 3, 256], 1, 599),
        feed([300, 512], 1, 520),
        feed([530], 2, 528),
        feed([530], 3, 527),
        feed([300], 17, 283),
        feed([1], 1, 0),
    ]
    assert_like_onnxruntime(model_of("q k v pk pv l t", **form), feeds)
