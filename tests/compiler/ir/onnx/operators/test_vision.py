"""Blocks, grids, regions and deformable windows against ONNX Runtime and numpy."""

import numpy as np
import pytest
from onnx import helper

from compiler.errors import ImportFailed
from tests.compiler.ir.onnx.running import (
    assert_close,
    assert_like_onnxruntime,
    build,
    model_of,
    normal,
)

IMAGES = [{"x": normal(*shape)} for shape in ((1, 8, 2, 2), (0, 8, 4, 2), (3, 8, 6, 10))]


def test_blocks() -> None:
    nodes = [
        helper.make_node("DepthToSpace", ["x"], [mode], blocksize=2, mode=mode)
        for mode in ("DCR", "CRD")
    ]
    nodes.append(helper.make_node("SpaceToDepth", ["x"], ["deep"], blocksize=2))
    assert_like_onnxruntime(
        model_of(nodes, {"x": "float32[n,8,h,w]"}), IMAGES, {"h": "2:64%2", "w": "2:64%2"}
    )


def test_blocks_that_do_not_divide() -> None:
    with pytest.raises(ImportFailed, match="does not divide"):
        build(
            model_of(
                [helper.make_node("DepthToSpace", ["x"], ["y"], blocksize=3)],
                {"x": "float32[n,8,h,w]"},
            )
        )
    built = build(
        model_of(
            [helper.make_node("SpaceToDepth", ["x"], ["y"], blocksize=2)], {"x": "float32[1,1,h,2]"}
        )
    )
    with pytest.raises(RuntimeError):
        built.run({"x": normal(1, 1, 3, 2)})


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grid_sample(padding: str) -> None:
    nodes = [
        helper.make_node(
            "GridSample",
            ["x", "grid"],
            [f"{mode}{corners}"],
            mode=mode,
            padding_mode=padding,
            align_corners=corners,
        )
        for mode, corners in (
            ("nearest", 0),
            ("nearest", 1),
            ("linear", 0),
            ("linear", 1),
            ("cubic", 0),
        )
    ]
    model = model_of(nodes, {"x": "float32[n,2,h,w]", "grid": "float32[n,p,q,2]"}, opset=20)
    feeds = [
        {"x": normal(n, 2, h, w), "grid": normal(n, p, q, 2) * 1.5}
        for n, h, w, p, q in ((1, 4, 5, 3, 2), (2, 7, 2, 1, 5))
    ]
    assert_like_onnxruntime(model, feeds)


def test_grid_sample_of_volumes() -> None:
    node = helper.make_node("GridSample", ["x", "grid"], ["y"], mode="linear")
    model = model_of([node], {"x": "float32[n,2,d,h,w]", "grid": "float32[n,o,p,q,3]"}, opset=20)
    assert_like_onnxruntime(model, [{"x": normal(1, 2, 3, 4, 5), "grid": normal(1, 2, 3, 2, 3)}])


def test_grids_are_affine() -> None:
    nodes = [
        helper.make_node("AffineGrid", ["theta", "size"], [f"y{corners}"], align_corners=corners)
        for corners in (0, 1)
    ]
    model = model_of(nodes, {"theta": "float32[n,2,3]", "size": "int64[4]"}, opset=20)
    assert_like_onnxruntime(
        model,
        [
            {"theta": normal(n, 2, 3), "size": np.array([n, 3, h, w])}
            for n, h, w in ((1, 2, 3), (2, 5, 4))
        ],
    )


@pytest.mark.parametrize("samples", [0, 2])
def test_roi_align(samples: int) -> None:
    nodes = [
        helper.make_node(
            "RoiAlign", ["x", "rois",
            "batch"], [f"{mode}{how}"], mode=mode, coordinate_transformation_mode=how,
            sampling_ratio=samples, output_height=3, output_width=2, spatial_scale=0.5,
        )
        for mode in ("avg", "max")
        for how in ("half_pixel", "output_half_pixel")
    ]  # fmt: skip
    model = model_of(
        nodes, {"x": "float32[n,2,h,w]", "rois": "float32[r,4]", "batch": "int64[r]"}, opset=16
    )
    rois = np.array([[0, 0, 12, 9], [3, 2, 5, 20], [-4, 1, 30, 4]], np.float32)
    feeds = [
        {"x": normal(2, 2, 7, 9), "rois": rois[:r], "batch": np.array([1, 0, 1])[:r]}
        for r in (1, 3)
    ]
    assert_like_onnxruntime(model, feeds, {"h": (1, None), "w": (1, None)})


def test_a_region_of_more_samples_than_anyone_waits_for_fails_at_run_time() -> None:
    node = helper.make_node("RoiAlign", ["x", "rois", "batch"], ["y"], output_height=2)
    inputs = {"x": "float32[n,2,h,w]", "rois": "float32[r,4]", "batch": "int64[r]"}
    built = build(model_of([node], inputs, opset=16), {"h": (1, None), "w": (1, None)})
    feed = {"x": normal(1, 2, 5, 4), "batch": np.array([0])}
    regions = ([0, 0, 1e8, 2], [0, 0, 3e3, 3e3])
    assert built.run({**feed, "rois": np.array([[0, 0, 900, 20]], np.float32)})
    for region in regions:
        with pytest.raises(RuntimeError, match="match_cast"):
            built.run({**feed, "rois": np.array([region], np.float32)})


def test_a_region_of_an_image_that_is_not_there_fails_at_run_time() -> None:
    node = helper.make_node("RoiAlign", ["x", "rois", "batch"], ["y"])
    built = build(
        model_of([node], {"x": "float32[n,1,4,4]", "rois": "float32[1,4]", "batch": "int64[1]"})
    )
    with pytest.raises(RuntimeError):
        built.run(
            {"x": normal(2, 1, 4, 4), "rois": np.ones((1, 4), np.float32), "batch": np.array([2])}
        )


def test_max_roi_pool() -> None:
    node = helper.make_node(
        "MaxRoiPool", ["x", "rois"], ["y"], pooled_shape=[2, 3], spatial_scale=0.5
    )
    rois = np.array([[0, 0, 0, 12, 9], [1, 3, 2, 5, 20], [1, 7, 7, 2, 2]], np.float32)
    model = model_of([node], {"x": "float32[n,2,h,w]", "rois": "float32[r,5]"})
    assert_like_onnxruntime(model, [{"x": normal(2, 2, 7, 9), "rois": rois[:r]} for r in (1, 3)])


def test_columns_add_up() -> None:
    attributes = {"strides": [2, 1], "dilations": [1, 2], "pads": [1, 0, 1, 1]}
    node = helper.make_node("Col2Im", ["x", "image", "block"], ["y"], **attributes)
    model = model_of([node], {"x": "float32[n,c,l]", "image": "int64[2]", "block": "int64[2]"})
    feeds = [
        {
            "x": normal(n, 3 * k * m, ((h + 2 - k) // 2 + 1) * (w + 1 - 2 * (m - 1))),
            "image": np.array([h, w]),
            "block": np.array([k, m]),
        }
        for n, h, w, k, m in ((1, 5, 6, 2, 3), (2, 4, 5, 3, 1))
    ]
    assert_like_onnxruntime(model, feeds)


def test_deformed_windows() -> None:
    attributes = {"pads": [1, 1, 1, 1], "strides": [2, 1], "group": 2, "offset_group": 2}
    nodes = [
        helper.make_node("DeformConv", ["x", "w", "offset", "bias", "mask"], ["y"], **attributes),
        helper.make_node("DeformConv", ["x", "w", "offset"], ["z"], **attributes),
    ]
    constants = {"w": normal(6, 2, 3, 3), "bias": normal(6)}
    model = model_of(
        nodes,
        {"x": "float32[n,4,h,w0]", "offset": "float32[n,36,oh,ow]", "mask": "float32[n,18,oh,ow]"},
        constants,
        opset=19,
    )
    feeds = []
    for n, h, w in ((1, 5, 4), (2, 6, 7)):
        out = (n, (h - 1) // 2 + 1, w)
        feeds.append(
            {
                "x": normal(n, 4, h, w),
                "offset": normal(n, 36, *out[1:]),
                "mask": normal(n, 18, *out[1:]),
            }
        )
    assert_like_onnxruntime(model, feeds)


def test_deform_conv_without_offsets_is_convolution() -> None:
    nodes = [
        helper.make_node("DeformConv", ["x", "w", "offset"], ["y"], dilations=[2, 2]),
        helper.make_node("Conv", ["x", "w"], ["z"], dilations=[2, 2]),
    ]
    model = model_of(
        nodes,
        {"x": "float32[n,3,h,w0]", "offset": "float32[n,18,oh,ow]"},
        {"w": normal(2, 3, 3, 3)},
    )
    got = build(model).run({"x": normal(2, 3, 8, 7), "offset": np.zeros((2, 18, 4, 3), np.float32)})
    assert_close(got[:1], got[1:], ["y"])
