"""Quantized operators, of the standard and of ONNX Runtime's own domain, beside ONNX Runtime at
several shapes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper
from tvm import relax

from compiler.bundle.weights import separate
from compiler.errors import ImportFailed
from compiler.ir import import_model
from compiler.ir.ops.pointwise import elementwise
from compiler.passes.manager import lower
from compiler.passes.pack.integer import PackInteger
from compiler.targets.vector_unit import VectorUnit
from relaxd.contract.request import CompileRequest
from tests.compiler.ir.onnx.running import (
    Arrays,
    assert_like_onnxruntime,
    build,
    model_of,
    normal,
    session_of,
)
from tests.compiler.passes import lowered
from tests.support.geometries import has_int8, host

MICROSOFT = "com.microsoft"


def one_node(
    op: str,
    inputs: Mapping[str, str],
    constants: Arrays,
    order: str,
    domain: str = MICROSOFT,
    outputs: Sequence[str] = ("y",),
    version: int = 19,
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one node; `order` lists its inputs, `-` for one that is omitted."""
    names = ["" if name == "-" else name for name in order.split()]
    node = helper.make_node(op, names, list(outputs), domain=domain, **attributes)
    model = model_of([node], inputs, constants, opset=version)
    model.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    return model


def assert_within_one_step(
    model: onnx.ModelProto, feeds: Sequence[Arrays], share: float = 0.02
) -> None:
    """Integers differ by one step at most, and only that share of them; floats by what float32
    loses.
    """
    built, session = build(model), session_of(model)
    for feed in feeds:
        for mine, theirs in zip(built.run(feed), session.run(None, dict(feed)), strict=True):
            assert mine.dtype == theirs.dtype
            assert mine.shape == theirs.shape
            apart = np.abs(mine.astype("f8") - theirs.astype("f8"))
            if mine.dtype.kind == "f":
                np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)
            else:
                assert apart.max(initial=0) <= 1
                assert np.count_nonzero(apart) <= max(1, share * apart.size)


def integers(*shape: int, dtype: str = "uint8", seed: int = 0) -> np.ndarray:
    info = np.iinfo(dtype)
    return np.random.default_rng((seed, *shape)).integers(
        info.min, info.max, shape, dtype, endpoint=True
    )


def f32(*values: float) -> np.ndarray:
    return np.array(values if len(values) != 1 else values[0], np.float32)


def u8(*values: int, dtype: str = "uint8") -> np.ndarray:
    return np.array(values if len(values) != 1 else values[0], dtype)


X = [{"x": normal(n, 5) * 3} for n in (0, 1, 7)]
ROWS = [{"x": integers(n, 6)} for n in (0, 1, 5)]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16"])
@pytest.mark.parametrize("axis", [None, 1])
def test_quantizing_and_dequantizing(dtype: str, axis: int | None) -> None:
    zero = np.zeros(() if axis is None else 5, dtype) + np.array(3, dtype)
    constants = {"s": f32(0.05) if axis is None else f32(0.01, 0.1, 1, 2, 3), "z": zero}
    attributes = {} if axis is None else {"axis": axis}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], **attributes),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], **attributes),
    ]
    assert_like_onnxruntime(model_of(nodes, {"x": "float32[n,5]"}, constants, opset=21), X)


def test_ties_go_to_even_and_the_range_saturates() -> None:
    model = one_node(
        "QuantizeLinear", {"x": "float32[n]"}, {"s": f32(2.0), "z": u8(1)}, "x s z", ""
    )
    feed = {"x": np.array([1, 3, 5, -1, -3, 508, 509, 1e30, -1e30, np.inf, -np.inf], np.float32)}
    assert build(model).run(feed)[0].tolist() == [1, 3, 3, 1, 0, 255, 255, 255, 0, 255, 0]


def test_blocks_along_an_axis() -> None:
    scale, zero = np.abs(normal(3, 2)) + 0.1, integers(3, 2)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=1, block_size=3),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=1, block_size=3),
    ]
    model = model_of(nodes, {"x": "float32[3,w]"}, {"s": scale, "z": zero}, opset=21)
    built = build(model)
    for width in (4, 6):
        x = normal(3, width)
        wide, shift = (np.repeat(v, 3, 1)[:, :width].astype("f4") for v in (scale, zero))
        wanted = np.clip(np.rint(x / wide) + shift, 0, 255)
        q, y = built.run({"x": x})
        np.testing.assert_array_equal(q, wanted.astype("u1"))
        np.testing.assert_allclose(y, (wanted - shift) * wide, rtol=1e-6, atol=1e-6)
    with pytest.raises(Exception, match=r"(?i)shape|match|expect"):
        built.run({"x": normal(3, 9)})


def test_a_scale_that_fits_no_axis_is_refused() -> None:
    with pytest.raises(ImportFailed, match="a scale of 4 elements for axis 1 of 5"):
        build(one_node("QuantizeLinear", {"x": "float32[n,5]"}, {"s": f32(1, 2, 3, 4)}, "x s", ""))


def test_types_of_six_bits_are_refused_by_name() -> None:
    kind = onnx.TensorProto.FLOAT6E2M3
    node = helper.make_node("QuantizeLinear", ["x", "s"], ["y"], output_dtype=kind)
    with pytest.raises(ImportFailed, match="output_dtype"):
        build(model_of([node], {"x": "float32[n]"}, {"s": f32(1.0)}, opset=21))


def test_dynamic_quantization() -> None:
    model = one_node(
        "DynamicQuantizeLinear", {"x": "float32[n,5]"}, {}, "x", "", ["y", "scale", "zero"]
    )
    assert_within_one_step(
        model, [*X[1:], {"x": np.zeros((2, 5), np.float32)}, {"x": np.abs(X[2]["x"]) + 5}]
    )


@pytest.mark.parametrize("depth", [6, 600])
@pytest.mark.parametrize("known", [True, False])
def test_integer_matmuls_are_exact(depth: int, known: bool) -> None:
    """600 products of 255 by 255 leave what float32 holds, so the sum is made in parts or in
    integers.
    """
    weight = np.full((depth, 4), 255, np.uint8)
    feeds = [{"x": np.full((n, depth), 255, np.uint8)} for n in (1, 3)] + [
        {"x": integers(2, depth)}
    ]
    inputs = {"x": f"uint8[n,{depth}]"} | ({} if known else {"w": f"uint8[{depth},m]"})
    model = one_node("MatMulInteger", inputs, {"w": weight} if known else {}, "x w", "")
    built = build(model)
    for feed in feeds:
        wanted = feed["x"].astype("i4") @ weight.astype("i4")
        np.testing.assert_array_equal(built.run({**feed, "w": weight})[0], wanted)


def test_integer_matmuls_less_zero_points() -> None:
    constants = {
        "w": integers(6, 4, dtype="int8"),
        "a": u8(7),
        "b": u8(-3, 0, 5, 100, dtype="int8"),
    }
    assert_within_one_step(
        one_node("MatMulInteger", {"x": "uint8[n,6]"}, constants, "x w a b", ""), ROWS
    )


@pytest.mark.parametrize("zeros", [131, 128, 0])
def test_unsigned_weights_stay_bytes(zeros: int) -> None:
    """Less a zero point they would take nine bits, two bytes of the library each."""
    constants = {"w": integers(40, 64), "a": u8(9), "b": np.full(64, zeros, np.uint8)}
    model = one_node("MatMulInteger", {"x": "uint8[n,40]"}, constants, "x w a b", "")
    packed = PackInteger(VectorUnit.of(host())).apply(
        relax.transform.FoldConstant()(build(model).imported.module)
    )
    large: list[Any] = []
    relax.analysis.post_order_visit(
        packed["main"],
        lambda node: (
            large.append(node.value.numpy())
            if isinstance(node, tvm.ir.GenericConst) and node.value.numpy().size >= 40 * 64
            else None
        ),
    )
    assert [weight.dtype for weight in large] == [np.int8] * len(large)
    assert large or not has_int8()


@pytest.mark.parametrize("zero", [None, u8(100)])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_weights_too_large_to_be_folded(
    dtype: str, zero: np.ndarray | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The matrix of a large vocabulary is not computed with while the graph is made."""
    monkeypatch.setattr(elementwise, "FOLD_LIMIT", 16)
    order = "x w" if zero is None else "x w a b"
    zeros: Arrays = {} if zero is None else {"a": u8(9), "b": zero.astype(dtype)}
    for op, shape, inputs, feeds in (
        ("MatMulInteger", (6, 4), "uint8[n,6]", ROWS),
        ("ConvInteger", (4, 4, 3, 3), "uint8[n,4,h,v]", [{"x": integers(1, 4, 5, 7)}]),
    ):
        constants = {"w": integers(*shape, dtype=dtype), **zeros}
        assert_within_one_step(one_node(op, {"x": inputs}, constants, order, ""), feeds)


@pytest.mark.parametrize("groups", [1, 2])
def test_integer_convolutions(groups: int) -> None:
    constants = {"w": integers(4, 4 // groups, 3, 3), "a": u8(9), "b": u8(100)}
    attributes: dict[str, Any] = {"pads": [1, 0, 1, 2], "strides": [2, 1], "group": groups}
    model = one_node(
        "ConvInteger", {"x": "uint8[n,4,h,w_]"}, constants, "x w a b", "", **attributes
    )
    assert_within_one_step(model, [{"x": integers(1, 4, 5, 7)}, {"x": integers(2, 4, 3, 3)}])


@pytest.mark.parametrize("channels", [3, 128])
def test_quantized_convolutions_with_a_scale_a_channel(channels: int) -> None:
    constants = {
        "w": integers(3, channels, 3, 3, dtype="int8"), "ss": f32(0.02), "a": u8(128),
        "ws": f32(0.01, 0.02, 0.03), "b": u8(0, 0, 0, dtype="int8"), "ys": f32(2.0),
        "yz": u8(120), "bias": np.array([100, -5000, 90000], np.int32),
    }  # fmt: skip
    model = one_node(
        "QLinearConv",
        {"x": f"uint8[n,{channels},h,v]"},
        constants,
        "x ss a w ws b ys yz bias",
        "",
        pads=[1, 1, 1, 1],
    )
    assert_within_one_step(
        model, [{"x": integers(1, channels, 5, 7)}, {"x": integers(2, channels, 4, 3)}]
    )


def test_quantized_matmuls() -> None:
    constants = {"w": integers(6, 4, dtype="int8"), "xs": f32(0.02), "xz": u8(120),
    "ws": f32(0.01, 0.1, 0.2, 0.05),
                 "wz": u8(0, 0, 0, 0, dtype="int8"), "ys": f32(0.1), "yz": u8(100)}  # fmt: skip
    assert_within_one_step(
        one_node("QLinearMatMul", {"x": "uint8[n,6]"}, constants, "x xs xz w ws wz ys yz", ""), ROWS
    )


GRIDS = {
    "xs": f32(0.02),
    "xz": u8(120),
    "vs": f32(0.03),
    "vz": u8(90),
    "ys": f32(0.05),
    "yz": u8(100),
}


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_elementwise_on_grids(op: str) -> None:
    model = one_node(op, {"x": "uint8[n,6]", "v": "uint8[6]"}, GRIDS, "x xs xz v vs vz ys yz")
    assert_within_one_step(model, [{**feed, "v": integers(6, seed=1)} for feed in ROWS])


def test_activations_on_grids() -> None:
    finer = {**GRIDS, "ys": f32(1 / 255), "yz": u8(0)}
    assert_within_one_step(
        one_node("QLinearSigmoid", {"x": "uint8[n,6]"}, finer, "x xs xz ys yz"), ROWS
    )
    assert_within_one_step(
        one_node("QLinearLeakyRelu", {"x": "uint8[n,6]"}, GRIDS, "x xs xz ys yz", alpha=0.2), ROWS
    )
    assert_within_one_step(
        one_node("QLinearSoftmax", {"x": "uint8[n,6]"}, finer, "x xs xz ys yz", axis=-1, opset=13),
        ROWS[1:],
        share=0.2,
    )


@pytest.mark.parametrize("last", [0, 1])
def test_pools_on_grids(last: int) -> None:
    shape, feeds = (
        ("n,h,v,2", [integers(1, 5, 7, 2), integers(2, 4, 4, 2)])
        if last
        else ("n,2,h,v", [integers(1, 2, 5, 7), integers(2, 2, 4, 4)])
    )
    inputs, order = {"x": f"uint8[{shape}]"}, "x xs xz ys yz"
    window: dict[str, Any] = {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 1]}
    assert_within_one_step(
        one_node("QLinearAveragePool", inputs, GRIDS, order, channels_last=last, **window),
        [{"x": x} for x in feeds],
    )
    assert_within_one_step(
        one_node("QLinearGlobalAveragePool", inputs, GRIDS, order, channels_last=last),
        [{"x": x} for x in feeds],
    )


def test_joining_and_choosing_on_grids() -> None:
    model = one_node(
        "QLinearConcat",
        {"x": "uint8[n,6]", "v": "uint8[n,6]"},
        GRIDS,
        "ys yz x xs xz v vs vz",
        axis=0,
    )
    assert_within_one_step(
        model, [{"x": feed["x"], "v": feed["x"][::-1].copy()} for feed in ROWS[1:]]
    )
    inputs = {"c": "bool[n,6]", "x": "uint8[n,6]", "v": "uint8[n,6]"}
    model = one_node("QLinearWhere", inputs, GRIDS, "c x xs xz v vs vz ys yz")
    assert_within_one_step(
        model,
        [{"c": feed["x"] > 99, "x": feed["x"], "v": feed["x"][::-1].copy()} for feed in ROWS[1:]],
    )


@pytest.mark.parametrize("quantized", [True, False])
def test_gemm_on_grids(quantized: bool) -> None:
    constants = {**GRIDS, "w": integers(4, 6, dtype="int8"), "ws": f32(0.01, 0.1, 0.2, 0.05),
    "wz": u8(0, 0, 0, 0, dtype="int8"),
                 "c": np.array([1, -200, 3000, 4], np.int32)}  # fmt: skip
    order = "x xs xz w ws wz c" + (" ys yz" if quantized else "")
    used = {name: value for name, value in constants.items() if name in order.split()}
    model = one_node(
        "QGemm", {"x": "uint8[n,6]"}, used, order, transB=1, alpha=0.5 if quantized else 1.0
    )
    assert_within_one_step(model, ROWS[1:])


def test_matmuls_that_come_out_as_floats() -> None:
    constants = {"w": integers(6, 4, dtype="int8"), "xs": f32(0.02),
    "ws": f32(0.01, 0.1, 0.2, 0.05), "xz": u8(120),
                 "wz": u8(0, 1, 2, 3, dtype="int8"), "c": normal(4)}  # fmt: skip
    assert_within_one_step(
        one_node("MatMulIntegerToFloat", {"x": "uint8[n,6]"}, constants, "x w xs ws xz wz c"),
        ROWS[1:],
    )
    used = {name: value for name, value in constants.items() if name not in ("xs", "xz")}
    model = one_node("DynamicQuantizeMatMul", {"x": "float32[n,m,6]"}, used, "x w ws wz c")
    assert_within_one_step(model, [{"x": normal(1, 1, 6)}, {"x": normal(2, 3, 6)}])


@pytest.mark.parametrize("zeros", ["none", "packed", "float"])
@pytest.mark.parametrize(("bits", "depth", "block"), [(4, 40, 16), (4, 48, 16), (8, 40, 32)])
def test_block_wise_quantized_weights(zeros: str, bits: int, depth: int, block: int) -> None:
    if zeros == "float" and bits == 8:
        pytest.skip("ONNX Runtime has no such kernel")
    blocks, columns = -(-depth // block), 5
    constants = {
        "w": integers(columns, blocks, block * bits // 8),
        "s": np.abs(normal(columns * blocks)) * 0.1,
    }
    if zeros == "packed":
        constants["z"] = integers(columns * -(-blocks * bits // 8))
    elif zeros == "float":
        constants["z"] = normal(columns * blocks) + 8
    order = "x w s" + ("" if zeros == "none" else " z")
    model = one_node(
        "MatMulNBits",
        {"x": f"float32[n,m,{depth}]"},
        constants,
        order,
        K=depth,
        N=columns,
        bits=bits,
        block_size=block,
    )
    assert_within_one_step(model, [{"x": normal(1, 1, depth)}, {"x": normal(2, 3, depth)}])


def test_the_microsoft_spelling_of_quantize() -> None:
    constants = {"s": f32(0.05), "z": u8(128)}
    assert_within_one_step(one_node("QuantizeLinear", {"x": "float32[n,5]"}, constants, "x s z"), X)
    assert_within_one_step(
        one_node("DequantizeLinear", {"x": "uint8[n,6]"}, constants, "x s z"), ROWS
    )


@pytest.mark.parametrize("zeros", [0, 131])
@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("attributes", [{}, {"unidirectional": 1}])
def test_attention_of_quantized_weights(
    zeros: int, columns: bool, attributes: dict[str, Any]
) -> None:
    scale = np.abs(normal(24)) / 40 if columns else f32(0.02)
    kind = "uint8" if zeros else "int8"
    constants = {
        "w": integers(8, 24, dtype=kind),
        "b": normal(24),
        "xs": f32(0.02),
        "ws": scale.astype(np.float32),
        "xz": u8(120),
        "wz": np.full(np.shape(scale), zeros, kind),
    }
    inputs = {"x": "uint8[n,s,8]", "m": "int32[n,t]", "p": "float32[2,n,2,c,4]"}
    order = "x w b xs ws m xz wz p"
    outputs = ["y", "present"]
    model = one_node(
        "QAttention", inputs, constants, order, outputs=outputs, num_heads=2, **attributes
    )
    feeds = [
        {"x": integers(n, s, 8), "m": np.ones((n, s + c), np.int32), "p": normal(2, n, 2, c, 4)}
        for n, s, c in ((1, 1, 3), (2, 5, 1))
    ]
    assert_within_one_step(model, feeds)


def test_quantized_embeddings_added_up_and_normalised() -> None:
    rows = {"word": (11, 8), "place": (6, 8), "segment": (2, 8), "gamma": (8,), "beta": (8,)}
    constants = {name: integers(*shape) for name, shape in rows.items()}
    constants |= {f"{name}_s": f32(0.01 + 0.01 * i) for i, name in enumerate(rows)}
    constants |= {f"{name}_z": u8(100 + i) for i, name in enumerate(rows)}
    order = " ".join(
        ["ids", "kinds", *rows, "m", *(f"{n}_s" for n in rows), *(f"{n}_z" for n in rows)]
    )
    inputs = dict.fromkeys(("ids", "kinds", "m"), "int32[n,s]")
    model = one_node(
        "QEmbedLayerNormalization", inputs, constants, order, outputs=["y", "lengths"], epsilon=1e-5
    )
    feeds = []
    for n, s in ((1, 1), (3, 6)):
        draw = np.random.default_rng(s)
        values = [draw.integers(0, most, (n, s)).astype(np.int32) for most in (11, 2, 2)]
        feeds.append(dict(zip(inputs, values, strict=True)))
    assert_within_one_step(model, feeds)


@pytest.mark.parametrize(
    ("groups", "channels", "columns", "rank"), [(4, 16, 32, 2), (2, 6, 10, 2), (1, 8, 24, 3)]
)
def test_grouped_and_volumetric_weights_stay_bytes(
    groups: int, channels: int, columns: int, rank: int
) -> None:
    """Their kernel multiplies floats, which hold the integers exactly."""
    weight = integers(columns, channels // groups, *[3] * rank, dtype="int8")
    axes = "hvd"[:rank]
    model = one_node(
        "ConvInteger",
        {"x": f"uint8[n,{channels},{','.join(axes)}]"},
        {"w": weight, "a": u8(9)},
        "x w a",
        "",
        group=groups,
        pads=[1] * 2 * rank,
    )
    dims = dict.fromkeys(("n", *axes), (1, None))
    built, session = lowered.build(model, dims), session_of(model)
    for extent in (1, 3, 8):
        feed = {"x": integers(2, channels, *[extent] * rank)}
        np.testing.assert_array_equal(built.run(feed)[0], session.run(None, feed)[0])
    imported = import_model(model, CompileRequest.of(dims=dims))
    constants = separate(lower(imported.module, host(), imported.ranges), smallest=64).constants
    assert [constant.numpy().dtype for constant in constants] == [np.int8]


def constants_of(model: onnx.ModelProto, dims: dict[str, Any]) -> list[np.ndarray]:
    """The larger ones of what a bundle holds."""
    imported = import_model(model, CompileRequest.of(dims=dims))
    lowered_module = lower(imported.module, host(), imported.ranges)
    return [one.numpy() for one in separate(lowered_module, smallest=1024).constants]


def dequantized_model(
    node: onnx.NodeProto, weight: np.ndarray, axis: int, inputs: str, zeros: int = 0
) -> onnx.ModelProto:
    """The node of xf and wf, which are dequantized from bytes, the latter by column or by one
    scale where `axis` is -1.
    """
    columns = () if axis < 0 else (weight.shape[axis],)
    constants = {
        "xs": f32(0.03),
        "xz": u8(119),
        "w": weight,
        "ws": np.abs(normal(*columns)).astype(np.float32) / 50 + f32(0.01),
        "wz": np.full(columns, zeros, weight.dtype),
        "b": normal(weight.shape[1] if axis < 0 else weight.shape[axis]),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], axis=max(axis, 0)),
        node,
    ]
    model = model_of(nodes, {"x": inputs}, constants, outputs=[node.output[0]])
    model.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    return model


@pytest.mark.parametrize(
    ("axis", "zeros", "window"),
    [
        (1, 0, {"strides": [2, 2]}),
        (1, 3, {"strides": [2, 1], "pads": [1, 0, 1, 2], "output_padding": [1, 0]}),
        (-1, 0, {"strides": [2, 2], "group": 2}),
        (-1, 0, {"dilations": [2, 2]}),
    ],
)
def test_transposed_convolutions_of_bytes(axis: int, zeros: int, window: dict[str, Any]) -> None:
    weight = integers(16, 24 // window.get("group", 1), 3, 3, dtype="int8")
    bias = [] if "group" in window else ["b"]
    node = helper.make_node("ConvTranspose", ["xf", "wf", *bias], ["y"], **window)
    model = dequantized_model(node, weight, axis, "float32[n,16,h,v]", zeros)
    dims = dict.fromkeys("nhv", (1, None))
    feeds = [{"x": normal(n, 16, h, v) * 3} for n, h, v in ((1, 1, 1), (2, 5, 7), (1, 8, 3))]
    assert_like_onnxruntime(model, feeds)
    lowered.assert_like_onnxruntime(model, feeds, dims)
    if has_int8() and window == {"strides": [2, 2]}:
        assert {one.dtype for one in constants_of(model, dims)} == {np.dtype(np.int8)}


def test_attention_by_dequantized_weights() -> None:
    weight = integers(64, 192, dtype="int8")
    names = ["xf", "wf", "b"]
    node = helper.make_node("Attention", names, ["y"], domain=MICROSOFT, num_heads=4)
    model = dequantized_model(node, weight, 1, "float32[n,s,64]")
    dims = dict.fromkeys("ns", (1, None))
    feeds = [{"x": normal(n, s, 64)} for n, s in ((1, 1), (2, 7))]
    lowered.assert_like_onnxruntime(model, feeds, dims, tolerance=1e-3)
    assert np.float32 not in {one.dtype.type for one in constants_of(model, dims) if one.ndim > 1}
