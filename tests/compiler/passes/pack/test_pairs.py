"""Products of operands that are rounded to bfloat16: which are, and what the kernels give."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper
from tvm import relax

from compiler import targets
from compiler.codegen.generate import generate
from compiler.ir import import_model
from compiler.passes.framework.kernel_notes import KernelNote
from compiler.passes.manager import to_kernels, to_machine, to_quantization
from compiler.passes.pack.pairs import bits_of_bfloats, pack_pairs, round_to_bfloat
from compiler.passes.pack.round_operands import RoundOperands
from compiler.quantize.module_plan import complete, pass_of
from compiler.quantize.onnx.matmuls import cast_operands
from compiler.quantize.plan import plan_graph
from compiler.targets import Target
from relaxd.contract.narrow import QuantizedLayers
from relaxd.contract.options import CompileOptions, Precision
from relaxd.contract.request import CompileRequest
from tests.compiler.conftest import HOST, assembly
from tests.compiler.ir.onnx.running import Built, assert_close, model_of, normal, session_of
from tests.compiler.passes.processors import nearest

pytestmark = pytest.mark.slow


def without(feature: str) -> Target:
    return replace(HOST, isa=tuple(other for other in HOST.isa if other != feature))


PAIRED = without("avx512_fp16")
"""Uses this processor's instruction for pairs, be it slow or not, where it has one."""
MACHINES: dict[str, Callable[[], Target]] = {
    "host": lambda: HOST,
    "paired host": lambda: PAIRED,
    "plain host": lambda: without("avx512_bf16"),
    **{name: partial(nearest, name) for name in ("x86-64-v2", "x86-64-v3")},
}


def compile_bfloat16(
    model: onnx.ModelProto, target: Target, **dims: Any
) -> tuple[Built, QuantizedLayers, list[str]]:
    """The library, what became of the layers, and the tiles of its kernels."""
    options = CompileOptions(precision=Precision.BFLOAT16).to_json()
    request = CompileRequest.of(dims=dims, options=options)
    imported, plan = import_model(model, request), plan_graph(model, request)
    quantization = pass_of(plan, request, imported, target)
    assert isinstance(quantization, RoundOperands)
    module = to_quantization(imported.module, target, imported.ranges, quantization)
    plan, planned = complete(plan, quantization, module, None, None)
    assert plan.layers is not None
    kernels = to_kernels(module, target, imported.ranges, (), planned, planned=True)
    tiles = [
        KernelNote.of(f).tile
        for f in kernels.functions.values()
        if isinstance(f, tvm.tirx.PrimFunc)
    ]
    executable = generate(to_machine(kernels, target, imported.ranges), target)
    return Built(imported, relax.VirtualMachine(executable, tvm.cpu())), plan.layers, tiles


def check(
    model: onnx.ModelProto, feeds: list[dict[str, Any]], target: Target, **dims: Any
) -> tuple[QuantizedLayers, list[str]]:
    """Compares with ONNX Runtime, which has the same roundings written into the model."""
    built, quantized, tiles = compile_bfloat16(model, target, **dims)
    reference, plain = session_of(cast_operands(model, quantized.layers)), session_of(model)
    names = [output.name for output in model.graph.output]
    for feed in feeds:
        got, want = built.run(feed), reference.run(None, feed)
        assert_close(got, want, names)
        if got[0].size > 100:
            other = plain.run(None, feed)
            assert np.abs(got[0] - other[0]).max() > 20 * np.abs(got[0] - want[0]).max()
    return quantized, tiles


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("depth", "columns"), [(16, 8), (33, 48), (127, 100), (384, 97), (2050, 33)]
)
def test_matmul(machine: str, depth: int, columns: int) -> None:
    weights = {"w": normal(depth, columns, seed=1), "b": normal(columns, seed=2)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], name="product"),
        helper.make_node("Add", ["p", "b"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    model = model_of(nodes, {"x": f"float32[n,{depth}]"}, weights, outputs=["y"])
    feeds = [{"x": normal(rows, depth, seed=rows)} for rows in (1, 2, 5, 7, 8, 9, 13, 31, 67)]
    quantized, tiles = check(model, feeds, MACHINES[machine](), n=(1, 80))
    assert quantized.layers == ("product",)
    assert any("bfloat16" in tile for tile in tiles)


CONVOLUTIONS = {
    # channels, columns, kernel, strides, pads, dilations
    "pointwise": (48, 40, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    "pointwise, strides": (33, 8, (1, 1), (2, 2), (0, 0, 0, 0), (1, 1)),
    "3x3": (24, 19, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    "3x3, odd channels, strides": (17, 50, (3, 3), (2, 1), (1, 0, 2, 1), (1, 1)),
    "few channels": (3, 33, (7, 7), (2, 2), (3, 3, 3, 3), (1, 1)),
    "few channels, dilation": (5, 16, (2, 3), (1, 1), (1, 2, 1, 2), (1, 2)),
    "one row": (6, 64, (1, 5), (1, 1), (0, 0, 0, 0), (1, 1)),
}


def convolution(case: str) -> onnx.ModelProto:
    channels, columns, kernel, strides, pads, dilations = CONVOLUTIONS[case]
    weights = {"w": normal(columns, channels, *kernel, seed=1), "b": normal(columns, seed=2)}
    attributes = {"strides": strides, "pads": pads, "dilations": dilations}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv", **attributes),
        helper.make_node("Sigmoid", ["c"], ["s"]),
        helper.make_node("Mul", ["c", "s"], ["y"]),
    ]
    return model_of(nodes, {"x": f"float32[n,{channels},h,w]"}, weights, outputs=["y"])


@pytest.mark.parametrize(
    "machine",
    ["host", *(pytest.param(one, marks=pytest.mark.long) for one in ("plain host", "x86-64-v3"))],
)
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolution(machine: str, case: str) -> None:
    channels = CONVOLUTIONS[case][0]
    sizes = ((1, 7, 7), (2, 9, 13), (1, 19, 8))
    feeds = [{"x": normal(n, channels, h, w, seed=h)} for n, h, w in sizes]
    dims = {"n": (1, 2), "h": (7, 32), "w": (7, 32)}
    quantized, tiles = check(convolution(case), feeds, MACHINES[machine](), **dims)
    assert quantized.layers == ("conv",)
    assert any("bfloat16" in tile for tile in tiles)


@pytest.mark.parametrize(
    "machine",
    ["host", *(pytest.param(one, marks=pytest.mark.long) for one in ("plain host", "x86-64-v3"))],
)
@pytest.mark.parametrize(
    ("channels", "columns"), [(32, 64), (65, 100), (48, 192), (48, 272), (4200, 40)]
)
def test_residual_of_images(machine: str, channels: int, columns: int) -> None:
    """Tiles write their outputs themselves, but for sums in several passes: rows that fill no tile,
    as many as there may be, columns that fill no panel, and images of one place.
    """
    weights = {"w": normal(columns, channels, 1, 1, seed=1), "b": normal(columns, seed=2)}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv"),
        helper.make_node("Add", ["c", "r"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    specs = {"x": f"float32[n,{channels},h,w]", "r": f"float32[n,{columns},h,w]"}
    model = model_of(nodes, specs, weights, outputs=["y"])
    sizes = [(1, 1, 1), (1, 7, 7), (2, 7, 7), (3, 4, 37), *((1, 1, width) for width in range(2, 9))]
    feeds = [
        {"x": normal(n, channels, h, w, seed=w), "r": normal(n, columns, h, w, seed=h + 1)}
        for n, h, w in sizes
    ]
    dims = {"n": (1, 3), "h": (1, 8), "w": (1, 40)}
    quantized, tiles = check(model, feeds, MACHINES[machine](), **dims)
    assert quantized.layers == ("conv",)
    assert any("bfloat16" in tile for tile in tiles)


def test_what_surrounds_a_matmul() -> None:
    """Projections of one tensor become one, views and transposes stand before and behind, and a
    weight is transposed by its node.
    """
    depth = 64
    constants = {name: normal(depth, depth, seed=i) / 8 for i, name in enumerate("qkvg")}
    constants["heads"] = np.array([1, -1, 4, depth // 4])
    constants["rows"] = np.array([-1, depth])
    nodes = []
    for name in "qkv":
        perm = [0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]
        nodes += [
            helper.make_node("MatMul", ["x", name], [f"{name}1"], name=name),
            helper.make_node("Reshape", [f"{name}1", "heads"], [f"{name}2"]),
            helper.make_node("Transpose", [f"{name}2"], [f"{name}3"], perm=perm),
        ]
    nodes += [
        helper.make_node("MatMul", ["q3", "k3"], ["s"], name="scores"),
        helper.make_node("Softmax", ["s"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v3"], ["o"], name="values"),
        helper.make_node("Transpose", ["o"], ["t"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["t", "rows"], ["r"]),
        helper.make_node("Gemm", ["r", "g"], ["y"], name="gemm", transB=1, alpha=0.5),
    ]
    model = model_of(nodes, {"x": f"float32[1,n,{depth}]"}, constants, outputs=["q1", "k1", "y"])
    built, quantized, _ = compile_bfloat16(model, PAIRED, n=(1, 40))
    inner = ("scores", "values") if "avx512_bf16" in PAIRED.isa else ()
    assert quantized.layers == ("q", "k", "v", *inner, "gemm")
    assert set(quantized.kept) == {"scores", "values"} - set(inner)
    session = session_of(cast_operands(model, quantized.layers))
    for rows in (1, 7, 40):
        feed = {"x": normal(1, rows, depth)}
        got, want = built.run(feed), session.run(None, feed)
        # Products of rounded numbers feed one that rounds again, where the last bit decides.
        assert_close(got[:2], want[:2], ["q1", "k1"])
        assert np.abs(got[2] - want[2]).max() < 2e-2 * np.abs(want[2]).max()


def reasons_of(nodes: list[onnx.NodeProto], constants: dict[str, Any], spec: str) -> dict[str, str]:
    model = model_of(nodes, {"x": spec}, constants, outputs=["y"])
    _, quantized, _ = compile_bfloat16(model, HOST, n=(1, 4))
    return dict(quantized.kept) if not quantized.layers else {}


def test_why_layers_stay() -> None:
    matmul = [helper.make_node("MatMul", ["x", "w"], ["y"], name="p")]
    assert "16 products" in reasons_of(matmul, {"w": normal(15, 20)}, "float32[n,15]")["p"]
    assert "8 columns" in reasons_of(matmul, {"w": normal(40, 7)}, "float32[n,40]")["p"]
    integers = np.rint(3 * normal(40, 40))
    assert "integers" in reasons_of(matmul, {"w": integers}, "float32[n,40]")["p"]
    twice = [helper.make_node("MatMul", ["x", "w"], ["m"], name="p"), *matmul]
    twice += [helper.make_node("Add", ["m", "m"], ["y"], name="p")]
    twice[1].output[0] = "other"
    assert "another operator" in reasons_of(twice, {"w": normal(40, 40)}, "float32[n,40]")["p"]

    def conv(groups: int) -> list[onnx.NodeProto]:
        pads = {"pads": [1, 1, 1, 1], "group": groups}
        return [helper.make_node("Conv", ["x", "w"], ["y"], name="c", **pads)]

    image = "float32[n,64,28,28]"
    assert "Winograd" in reasons_of(conv(1), {"w": normal(64, 64, 3, 3)}, image)["c"]
    assert "groups" in reasons_of(conv(64), {"w": normal(64, 1, 3, 3)}, image)["c"]


def test_equal_layers_are_one() -> None:
    """The import merges them, so the reference rounds both."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="one"),
        helper.make_node("MatMul", ["x", "w"], ["b"], name="two"),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    model = model_of(nodes, {"x": "float32[n,64]"}, {"w": normal(64, 40)}, outputs=["y"])
    check(model, [{"x": normal(9, 64)}], HOST, n=(1, 9))


def test_numbers_at_the_ends_of_the_range() -> None:
    """NaN stays NaN, infinities and what rounds to one are infinite; numbers below the least
    normal one may be 0.
    """
    depth = 16
    model = model_of(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="p")],
        {"x": f"float32[n,{depth}]"},
        {"w": np.eye(depth, dtype=np.float32) / 2 + np.float32(0)},
        outputs=["y"],
    )
    model.graph.initializer[0].CopyFrom(
        onnx.numpy_helper.from_array(np.full((16, 16), 0.5, "f4"), "w")
    )
    rows = np.zeros((5, depth), np.float32)
    rows[0, 3], rows[1, 4], rows[2, 5] = np.nan, np.inf, 3.4e38
    rows[3, 6], rows[4, 15] = 1e-40, -np.inf
    for machine in ("host", "plain host"):
        got = compile_bfloat16(model, MACHINES[machine](), n=(1, 9))[0].run({"x": rows})[0][:, 0]
        assert np.isnan(got[0])
        assert list(got[[1, 2, 4]]) == [np.inf, np.inf, -np.inf]
        assert abs(got[3]) < 1e-39


def test_casts_take_even_neighbours() -> None:
    values = np.array(
        [1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -(1 + 2**-8), np.inf, 3.4e38], np.float32
    )
    bfloats = round_to_bfloat(values)
    assert list(bfloats) == [1, 1 + 2**-6, 1 + 2**-7, -1, np.inf, np.inf]
    assert np.isnan(round_to_bfloat(np.array([0x7FFFFFFF], np.uint32).view(np.float32)))[0]
    packed = pack_pairs([bfloats[:3, None]], 2)
    assert packed.shape == (1, 2, 2)
    lower, upper = packed & 0xFFFF, packed >> 16
    assert list(np.stack([lower, upper], 1)[0, :, :, 0].T.ravel()) == [
        *bits_of_bfloats(bfloats[:3]),
        0,
    ]


ARM = {"kind": "llvm", "mtriple": "aarch64-unknown-linux-gnu", "mcpu": "generic"}
X86 = {"kind": "llvm", "mtriple": "x86_64-unknown-linux-gnu", "mcpu": "x86-64-v4"}


@pytest.mark.parametrize(
    ("target", "instruction"),
    [
        ({**X86, "mattr": ["+avx512bf16"]}, "vdpbf16ps"),
        (X86, "vfmadd"),
        ({**ARM, "mattr": ["+neon", "+bf16"]}, "bfdot"),
        ({**ARM, "mattr": ["+neon"]}, "fmla"),
    ],
)
def test_the_instruction(target: dict[str, Any], instruction: str) -> None:
    resolved = targets.resolve(json.dumps(target))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="p")]
    model = model_of(nodes, {"x": "float32[n,64]"}, {"w": normal(64, 96)}, outputs=["y"])
    options = CompileOptions(precision=Precision.BFLOAT16).to_json()
    request = CompileRequest.of(dims={"n": (1, 9)}, options=options)
    imported = import_model(model, request)
    quantization = pass_of(plan_graph(model, request), request, imported, resolved)
    kernels = to_kernels(imported.module, resolved, imported.ranges, (), quantization)
    text = assembly(generate(to_machine(kernels, resolved, imported.ranges), resolved))
    assert instruction in text
    assert ("bf" in instruction) == ("dpbf16" in text or "bfdot" in text)
