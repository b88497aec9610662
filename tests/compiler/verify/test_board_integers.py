"""Products of integers on emulated boards, by instructions that no processor of ours has."""

import numpy as np
import onnx
import pytest
from onnx import helper

from compiler import compile_model
from compiler.verify.emulation import board
from compiler.verify.run.board import Program, program_of
from relaxd.loader.bundles.bundle import read_manifest
from tests.compiler.ir.onnx.running import model_of
from tests.compiler.passes.references import convolution
from tests.support.emulated import require_board, with_c_library

pytestmark = [pytest.mark.slow, with_c_library]

BOARDS = ("cortex-m4", "cortex-m7", "cortex-m55", "rv32imc", "rv32imafc")
MATRICES = [(1, 1), (3, 2), (4, 9), (5, 4), (8, 8), (37, 19)]
"""Depths and columns: parts of a group, whole ones, and both."""
WINDOWS = [(1, 3, 2), (3, 2, 1), (9, 1, 1), (8, 3, 1)]
"""Channels, side of the window, and stride; below of windows that have one channel each."""
DEPTHWISE = [(5, 3, 1), (8, 3, 2), (1, 2, 1)]
GRIDS = [("uint8", 0), ("uint8", 200), ("int8", -7), ("int16", 0)]
FLOATS = [-0.25, 0.25, 0.75, 1.25, 99.75, 1e9, -1e9, 3e38, np.inf, -np.inf, -64.25, 31.75]
"""Halves of 0.5, what lies beyond every integer, and what saturates beside what does not."""


def _matrix(depth: int, columns: int) -> np.ndarray:
    matrix = np.random.default_rng(depth).integers(-128, 128, (depth, columns)).astype("int8")
    matrix[0, 0] = -128
    return matrix


def _weight(channels: int, side: int) -> np.ndarray:
    shape = (7, channels, side, side)
    return np.random.default_rng(channels).integers(-128, 128, shape).astype("int8")


def _taps(channels: int, side: int) -> np.ndarray:
    shape = (channels, 1, side, side)
    return np.random.default_rng(channels).integers(-128, 128, shape).astype("int8")


def _model() -> onnx.ModelProto:
    nodes, inputs = [], {}
    constants: dict[str, np.ndarray] = {"zero": np.array(131, "uint8")}
    for depth, columns in MATRICES:
        name = f"m{depth}"
        inputs[name] = f"uint8[n,{depth}]"
        constants[f"{name}w"] = _matrix(depth, columns)
        nodes.append(helper.make_node("MatMulInteger", [name, f"{name}w", "zero"], [f"{name}y"]))
    for channels, side, stride in WINDOWS:
        name = f"c{channels}"
        inputs[name] = f"uint8[n,{channels},5,4]"
        constants[f"{name}w"] = _weight(channels, side)
        nodes.append(
            helper.make_node(
                "ConvInteger", [name, f"{name}w", "zero"], [f"{name}y"],
                pads=[side // 2] * 4, strides=[stride] * 2,
            )
        )  # fmt: skip
    for channels, side, stride in DEPTHWISE:
        name = f"d{channels}"
        inputs[name] = f"uint8[n,{channels},5,4]"
        constants[f"{name}w"] = _taps(channels, side)
        nodes.append(
            helper.make_node(
                "ConvInteger", [name, f"{name}w", "zero"], [f"{name}y"],
                pads=[side // 2] * 4, strides=[stride] * 2, group=channels,
            )
        )  # fmt: skip
    inputs["bytes"], constants["ones"] = "uint8[n,6,5,4]", np.ones((6, 1, 5, 4), "int8")
    nodes.append(helper.make_node("ConvInteger", ["bytes", "ones", "zero"], ["total"], group=6))
    nodes.append(helper.make_node("DequantizeLinear", ["bytes", "half", "zero"], ["floats"]))
    nodes.append(helper.make_node("GlobalAveragePool", ["floats"], ["means"]))
    inputs["reals"], constants["half"] = f"float32[n,{len(FLOATS)}]", np.array(0.5, np.float32)
    for kind, zero in GRIDS:
        constants[f"{kind}{zero}"] = np.array(zero, kind)
        names = ["reals", "half", f"{kind}{zero}"]
        nodes.append(helper.make_node("QuantizeLinear", names, [f"y{kind}{zero}"]))
    outputs = [node.output[0] for node in nodes if node.output[0] != "floats"]
    return model_of(nodes, inputs, constants, outputs=outputs)


@pytest.fixture(scope="module", params=BOARDS)
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Program:
    target = require_board(request.param)
    work = tmp_path_factory.mktemp("integers")
    onnx.save(_model(), work / "model.onnx")
    bundle, scratch = work / "out", work / "scratch"
    scratch.mkdir()
    options = {"profile": False, "verify": False}
    compile_model(
        work / "model.onnx", output=bundle, target=target.name, dims={"n": "1:5"}, options=options
    )
    entry = read_manifest(bundle).entry
    assert board.build(bundle, entry, target, scratch / "program") is None
    return program_of({"bundle": str(bundle), "target": target.name, "scratch": str(scratch)})


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_accumulators_are_exact_and_floats_quantized(program: Program, n: int) -> None:
    draw = np.random.default_rng(n)
    shapes: dict[str, tuple[int, ...]] = {f"m{depth}": (n, depth) for depth, _ in MATRICES}
    shapes |= {f"c{channels}": (n, channels, 5, 4) for channels, *_ in WINDOWS}
    shapes |= {f"d{channels}": (n, channels, 5, 4) for channels, *_ in DEPTHWISE}
    shapes["bytes"] = (n, 6, 5, 4)
    feeds = {name: draw.integers(0, 256, shape).astype("uint8") for name, shape in shapes.items()}
    for x in feeds.values():
        x.flat[0], x.flat[-1] = 0, 255
    feeds["reals"] = np.tile(np.array(FLOATS, "float32"), (n, 1))
    outputs = program.run(feeds)
    for depth, columns in MATRICES:
        x = feeds[f"m{depth}"].astype("int64") - 131
        np.testing.assert_array_equal(outputs[f"m{depth}y"], x @ _matrix(depth, columns))
    for channels, side, stride in WINDOWS:
        x = feeds[f"c{channels}"].astype("float64") - 131
        pads = (side // 2,) * 4
        want = convolution(x, _weight(channels, side), (stride, stride), pads)
        np.testing.assert_array_equal(outputs[f"c{channels}y"], want)
    for channels, side, stride in DEPTHWISE:
        x = feeds[f"d{channels}"].astype("float64") - 131
        pads, strides = (side // 2,) * 4, (stride, stride)
        want = convolution(x, _taps(channels, side), strides, pads, groups=channels)
        np.testing.assert_array_equal(outputs[f"d{channels}y"], want)
    total = (feeds["bytes"].astype("int64") - 131).sum((2, 3), keepdims=True)
    np.testing.assert_array_equal(outputs["total"], total)
    means = (feeds["bytes"].astype("float64") - 131).mean((2, 3), keepdims=True) / 2
    np.testing.assert_allclose(outputs["means"], means, rtol=1e-6, atol=1e-6)
    for kind, zero in GRIDS:
        limits = np.iinfo(kind)
        steps = np.rint(feeds["reals"].astype("float64") * 2) + zero
        want = np.clip(steps, limits.min, limits.max).astype(kind)
        np.testing.assert_array_equal(outputs[f"y{kind}{zero}"], want)
