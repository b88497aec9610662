"""Convolutions over images with channels last become programs over packed weights."""

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import tirx as T

from compiler.passes.pack.conv import PackConv
from compiler.passes.pack.matmul import pack_panels
from compiler.targets.vector_unit import VectorUnit
from relaxd.contract.dims.dims import Dim
from tests.compiler.conftest import build_module
from tests.compiler.ranges import ranges_of

op = relax.op
FOUR_LANES = VectorUnit(vector_bits=128)
DENSE = np.arange(96, dtype="float32").reshape(6, 2, 1, 8) + np.float32(0.5)
"""[O, kh, kw, C]."""
TAPS = np.arange(20, dtype="float32").reshape(5, 1, 4, 1)


@T.prim_func(private=True, s_tir=True)
def panel_conv(
    x: T.Buffer((T.int64(2), T.int64(6), T.int64(7), T.int64(8)), "float32"),
    panels: T.Buffer((T.int64(1), T.int64(16), T.int64(8)), "float32"),
    conv: T.Buffer((T.int64(2), T.int64(5), T.int64(7), T.int64(6)), "float32"),
):
    T.func_attr({"op_pattern": 4, "tirx.noalias": True})
    for a, b, c, d, e, f, g in T.grid(
        T.int64(2), T.int64(5), T.int64(7), T.int64(6), T.int64(2), T.int64(1), T.int64(8)
    ):
        with T.sblock("conv"):
            image, row, column, o, kh, kw, k = T.axis.remap("SSSSRRR", [a, b, c, d, e, f, g])
            with T.init():
                conv[image, row, column, o] = T.float32(0)
            conv[image, row, column, o] = (
                conv[image, row, column, o]
                + x[image, row + kh, column + kw, k]
                * panels[o // T.int64(8), kh * T.int64(8) + kw * T.int64(8) + k, o % T.int64(8)]
            )


@T.prim_func(private=True, s_tir=True)
def depthwise_conv(
    x: T.Buffer((T.int64(2), T.int64(6), T.int64(7), T.int64(5)), "float32"),
    taps: T.Buffer((T.int64(1), T.int64(4), T.int64(5)), "float32"),
    depthwise: T.Buffer((T.int64(2), T.int64(6), T.int64(4), T.int64(5)), "float32"),
):
    T.func_attr({"op_pattern": 4, "tirx.noalias": True})
    for a, b, c, d, e, f in T.grid(
        T.int64(2), T.int64(6), T.int64(4), T.int64(5), T.int64(1), T.int64(4)
    ):
        with T.sblock("depthwise"):
            image, row, column, k, kh, kw = T.axis.remap("SSSSRR", [a, b, c, d, e, f])
            with T.init():
                depthwise[image, row, column, k] = T.float32(0)
            depthwise[image, row, column, k] = (
                depthwise[image, row, column, k]
                + x[image, row + kh, column + kw, k] * taps[kh, kw, k]
            )


def convolution(
    weight: np.ndarray[Any, Any], groups: int = 1, layout: str = "NHWC", kernel: str = "OHWI"
) -> Any:
    return lambda builder, x: op.nn.conv2d(
        x,
        relax.const(weight),
        groups=groups,
        data_layout=layout,
        kernel_layout=kernel,
        out_layout=layout,
    )


def test_weights_lie_in_panels() -> None:
    def after(builder: Any, x: Any) -> Any:
        panels = relax.const(pack_panels(DENSE.reshape(6, 16).T, 8))
        ty = relax.TensorType([2, 5, 7, 6], "float32")
        return relax.call_tir(builder.add_func(panel_conv, "panel_conv"), [x, panels], ty)

    inputs = {"x": ((2, 6, 7, 8), "float32")}
    packed = PackConv(FOUR_LANES).apply(build_module(convolution(DENSE), inputs))
    tvm.ir.assert_structural_equal(packed, build_module(after, inputs))


def test_each_channel_has_its_taps() -> None:
    def after(builder: Any, x: Any) -> Any:
        taps = relax.const(np.ascontiguousarray(TAPS[..., 0].transpose(1, 2, 0)))
        ty = relax.TensorType([2, 6, 4, 5], "float32")
        return relax.call_tir(builder.add_func(depthwise_conv, "depthwise_conv"), [x, taps], ty)

    inputs = {"x": ((2, 6, 7, 5), "float32")}
    packed = PackConv(FOUR_LANES).apply(build_module(convolution(TAPS, groups=5), inputs))
    tvm.ir.assert_structural_equal(packed, build_module(after, inputs))


@pytest.mark.parametrize(
    ("channels", "weight", "pads", "programs"),
    [
        ((8, 8), 3, 1, ["panel_conv"]),
        ((3, 8), 3, 1, ["nn.pad", "panel_conv"]),
        ((3, 8), 1, 0, ["panel_conv"]),
        ((16, 16), 3, 1, ["winograd_conv"]),
    ],
    ids=["padded inside", "few channels are padded apart", "single points", "winograd"],
)
def test_what_runs(channels: tuple[int, int], weight: int, pads: int, programs: list[str]) -> None:
    assert programs_of(channels, weight, pads, {}) == programs


@pytest.mark.parametrize(
    ("channels", "favoured", "program"),
    [
        (320, {}, "panel_conv"),
        (320, {"h": 28, "w": 28}, "winograd_conv"),
        (320, {"h": 7, "w": 7}, "panel_conv"),
        (320, {"n": 2, "h": 7, "w": 7}, "winograd_conv"),
        (320, {"h": 28}, "panel_conv"),
        (16, {"h": 7, "w": 7}, "panel_conv"),
    ],
    ids=[
        "much weight, extents open",
        "many tiles",
        "few tiles",
        "few tiles of two images",
        "one extent open",
        "little weight, few tiles",
    ],
)
def test_the_favoured_extents_choose_the_algorithm(
    channels: int, favoured: dict[str, int], program: str
) -> None:
    assert programs_of((channels, channels), 3, 1, favoured) == [program]


def programs_of(
    channels: tuple[int, int], weight: int, pads: int, favoured: dict[str, int]
) -> list[str]:
    """The programs that a convolution of images [n, h, w, channels] becomes."""
    constant = relax.const(np.full((channels[1], weight, weight, channels[0]), 0.5, "float32"))
    layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_layout": "NHWC"}
    module = build_module(
        lambda builder, x: op.nn.conv2d(x, constant, padding=[pads] * 4, **layouts),
        {"x": (("n", "h", "w", channels[0]), "float32")},
    )
    ranges = ranges_of(module, *(Dim(name, opt=value) for name, value in favoured.items()))
    calls = [
        binding.value
        for block in PackConv(FOUR_LANES, ranges).apply(module)["main"].body.blocks
        for binding in block.bindings
    ]
    return [
        call.args[0].name_hint
        if call.op.name == "relax.call_tir"
        else call.op.name.removeprefix("relax.")
        for call in calls
    ]


def test_images_with_channels_first_stay() -> None:
    weight = np.ones((6, 8, 3, 3), "float32")
    module = build_module(
        convolution(weight, layout="NCHW", kernel="OIHW"), {"x": (("n", 8, "h", "w"), "float32")}
    )
    tvm.ir.assert_structural_equal(PackConv(FOUR_LANES).apply(module), module)
