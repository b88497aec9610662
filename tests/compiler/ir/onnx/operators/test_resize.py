"""Resize and Upsample in every mode against ONNX Runtime."""

from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from compiler.errors import ImportFailed
from tests.compiler.ir.onnx.running import (
    assert_close,
    assert_like_onnxruntime,
    build,
    model_of,
    normal,
)

IMAGES = [
    {"x": normal(*shape)} for shape in ((1, 2, 7, 9), (2, 2, 4, 4), (1, 2, 1, 1), (3, 2, 13, 2))
]
MODES: list[dict[str, Any]] = [
    *(
        {"mode": "nearest", "nearest_mode": nearest}
        for nearest in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    ),
    {"mode": "linear"},
    {"mode": "cubic"},
    {"mode": "cubic", "exclude_outside": 1, "cubic_coeff_a": -0.5},
]


@pytest.mark.parametrize(
    "coordinates", ["half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"]
)
def test_known_scales(coordinates: str) -> None:
    scales = {"twice": [1, 1, 2, 2], "mixed": [1, 1, 0.5, 1.7], "odd": [1, 1, 3, 0.6]}
    if coordinates == "align_corners":
        # ONNX takes the unrounded extent there, ONNX Runtime the rounded one.
        scales = {"twice": scales["twice"]}
    nodes = [
        helper.make_node(
            "Resize",
            ["x", "", name],
            [f"{name}{index}"],
            coordinate_transformation_mode=coordinates,
            **mode,
        )
        for name in scales
        for index, mode in enumerate(MODES)
    ]
    constants = {name: np.array(scale, np.float32) for name, scale in scales.items()}
    assert_like_onnxruntime(model_of(nodes, {"x": "float32[n,2,h,w]"}, constants), IMAGES)


def test_sizes_computed_from_the_shape() -> None:
    shapes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Slice", ["shape", "zero", "two"], ["outer"]),
        helper.make_node("Slice", ["shape", "two", "four"], ["inner"]),
        helper.make_node("Mul", ["inner", "two"], ["doubled"]),
        helper.make_node("Add", ["inner", "two"], ["grown"]),
        helper.make_node("Concat", ["outer", "doubled"], ["size0"], axis=0),
        helper.make_node("Concat", ["outer", "grown"], ["size1"], axis=0),
    ]
    resizes = [
        helper.make_node(
            "Resize",
            ["x", "", "", size],
            [f"{size}{mode}{how}"],
            mode=mode,
            coordinate_transformation_mode=how,
            nearest_mode="floor",
        )
        for size in ("size0", "size1")
        for mode in ("nearest", "linear", "cubic")
        for how in ("asymmetric", "half_pixel", "align_corners")
    ]
    constants = {"zero": np.array([0]), "two": np.array([2]), "four": np.array([4])}
    outputs = [node.output[0] for node in resizes]
    assert_like_onnxruntime(
        model_of([*shapes, *resizes], {"x": "float32[n,2,h,w]"}, constants, outputs=outputs),
        IMAGES[:2],
    )


def test_sizes_and_scales_that_only_a_run_knows() -> None:
    nodes = [
        helper.make_node("Resize", ["x", "", "", "sizes"], ["sized"], mode="linear", axes=[2, 3]),
        helper.make_node("Resize", ["x", "", "scales"], ["scaled"], mode="cubic", axes=[3, 2]),
    ]
    model = model_of(nodes, {"x": "float32[1,2,h,w]", "sizes": "int64[2]", "scales": "float32[2]"})
    feeds = [
        {"x": normal(1, 2, 5, 6), "sizes": np.array(sizes), "scales": np.array(scales, np.float32)}
        for sizes, scales in (([3, 11], [1.5, 2]), ([5, 6], [1, 0.5]))
    ]
    assert_like_onnxruntime(model, feeds)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_one_scale_for_all_axes(policy: str) -> None:
    node = helper.make_node(
        "Resize", ["x", "", "", "sizes"], ["y"], axes=[2, 3], keep_aspect_ratio_policy=policy
    )
    model = model_of([node], {"x": "float32[1,2,h,w]"}, {"sizes": np.array([7, 8])})
    assert_like_onnxruntime(model, [{"x": normal(1, 2, 2, 4)}, {"x": normal(1, 2, 20, 9)}])


def test_antialiasing_averages_what_shrinks() -> None:
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear", antialias=1)
    built = build(
        model_of(
            [node], {"x": "float32[1,1,h,w]"}, {"scales": np.array([1, 1, 0.5, 0.5], np.float32)}
        )
    )
    x = normal(1, 1, 8, 12)
    weights = np.array([1, 3, 3, 1]) / 8
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)], mode="edge"), (4, 4), (2, 3)
    )[:, :, ::2, ::2]
    assert_close(
        built.run({"x": x}),
        [np.einsum("nchwij,i,j->nchw", windows, weights, weights).astype(np.float32)],
        ["y"],
    )


@pytest.mark.parametrize("opset", [7, 9, 10])
def test_old_forms(opset: int) -> None:
    op = "Resize" if opset == 10 else "Upsample"
    scales = [1.0, 1.0, 2.0, 1.5]
    scaling: tuple[list[str], dict[str, Any]] = (
        (["x"], {"scales": scales}) if opset == 7 else (["x", "s"], {})
    )
    nodes = [
        helper.make_node(op, scaling[0], [mode], mode=mode, **scaling[1])
        for mode in ("nearest", "linear")
    ]
    constants = (
        {}
        if opset == 7
        else {"s": np.array(scales, np.float32), "t": np.array([1, 1, 0.5, 0.7], np.float32)}
    )
    if opset == 10:
        nodes += [
            helper.make_node(op, ["x", "t"], [f"small_{mode}"], mode=mode)
            for mode in ("nearest", "linear")
        ]
    assert_like_onnxruntime(
        model_of(nodes, {"x": "float32[n,2,h,w]"}, constants, opset=opset), IMAGES[:2]
    )


def test_crop_and_resize() -> None:
    node = helper.make_node(
        "Resize",
        ["x", "roi", "", "sizes"],
        ["y"],
        mode="linear",
        coordinate_transformation_mode="tf_crop_and_resize",
        extrapolation_value=10.0,
    )
    constants = {
        "roi": np.array([0, 0, 0.4, 0.6, 1, 1, 1.2, 1.7], np.float32),
        "sizes": np.array([1, 1, 3, 3]),
    }
    assert_like_onnxruntime(
        model_of([node], {"x": "float32[1,1,h,w]"}, constants),
        [{"x": normal(1, 1, 4, 4)}, {"x": normal(1, 1, 7, 5)}],
    )


def test_integers_are_repeated_without_arithmetic() -> None:
    node = helper.make_node(
        "Resize",
        ["x", "", "s"],
        ["y"],
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )
    built = build(
        model_of([node], {"x": "int32[n,1,h,w]"}, {"s": np.array([1, 1, 2, 3], np.float32)})
    )
    x = np.arange(6, dtype=np.int32).reshape(1, 1, 2, 3) + (1 << 30)
    assert_close(built.run({"x": x}), [x.repeat(2, 2).repeat(3, 3)], ["y"], 0)
    assert "float" not in built.imported.module["resize"].script().replace("from", "")


@pytest.mark.parametrize(
    ("attributes", "message"),
    [({"mode": "area"}, "none of nearest"), ({"keep_aspect_ratio_policy": "odd"}, "not known")],
)
def test_refusals(attributes: dict[str, str], message: str) -> None:
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], **attributes)
    with pytest.raises(ImportFailed, match=message):
        build(model_of([node], {"x": "float32[1,1,h,w]"}, {"sizes": np.array([1, 1, 3, 3])}))


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_scales_that_are_no_scales_fail_at_run_time(mode: str) -> None:
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], mode=mode)
    built = build(model_of([node], {"x": "float32[h,w]", "s": "float32[2]"}))
    x = normal(3, 2)
    assert built.run({"x": x, "s": np.array([2, 1.5], np.float32)})[0].shape == (6, 3)
    for bad in (-1.0, 0.0, np.nan, np.inf, 1e30):
        with pytest.raises(RuntimeError, match="match_cast"):
            built.run({"x": x, "s": np.array([1, bad], np.float32)})


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_regions_far_outside_give_what_stands_there(mode: str) -> None:
    node = helper.make_node(
        "Resize",
        ["x", "r", "s"],
        ["y"],
        mode=mode,
        coordinate_transformation_mode="tf_crop_and_resize",
        extrapolation_value=7.0,
    )
    built = build(model_of([node], {"x": "float32[h]", "r": "float32[2]", "s": "float32[1]"}))
    feed = {"x": normal(4), "s": np.array([1], np.float32)}
    for ends in ((1e30, 2e30), (-np.inf, -np.inf), (np.nan, np.nan), (-1e9, -1e8)):
        (y,) = built.run({**feed, "r": np.array(ends, np.float32)})
        assert y.tolist() == [7.0] * 4


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_antialiasing_keeps_the_aspect(mode: str, policy: str) -> None:
    """The windows reach as far as the common scale says, not as the rounded extents do."""
    attributes = {"mode": mode, "keep_aspect_ratio_policy": policy, "antialias": 1, "axes": [2, 3]}
    model = model_of(
        [helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], **attributes)],
        {"x": "float32[1,1,h,w]"},
        {"sizes": np.array([12, 16])},
        opset=18,
    )
    built, reference = build(model), ReferenceEvaluator(model)
    for h, w in ((8, 35), (12, 34), (25, 12), (25, 20), (26, 10), (40, 15), (4, 40), (12, 16)):
        feed = {"x": normal(1, 1, h, w)}
        assert_close(built.run(feed), reference.run(None, feed), ["y"])


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_an_axis_without_elements_cannot_grow(mode: str) -> None:
    """Nothing is read beside the input; ONNX Runtime refuses it too."""
    node = helper.make_node("Resize", ["x", "", "", "s"], ["y"], mode=mode)
    built = build(model_of([node], {"x": "float32[n,2,h,w]", "s": "int64[4]"}))
    for shape, sizes in (
        ((0, 2, 3, 5), (0, 2, 7, 9)), ((1, 2, 0, 5), (1, 2, 0, 9)), ((1, 2, 3, 5), (1, 2, 7, 0))
    ):  # fmt: skip
        (y,) = built.run({"x": normal(*shape), "s": np.array(sizes)})
        assert y.shape == sizes
    for shape, sizes in (((0, 2, 3, 5), (3, 2, 7, 9)), ((1, 2, 0, 5), (1, 2, 7, 9))):
        with pytest.raises(RuntimeError, match="match_cast"):
            built.run({"x": normal(*shape), "s": np.array(sizes)})


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_constant_sizes_without_elements(mode: str) -> None:
    node = helper.make_node("Resize", ["x", "", "", "s"], ["y"], mode=mode)
    model = model_of([node], {"x": "float32[n,2,h,5]"}, {"s": np.array([0, 2, 7, 9])})
    assert_like_onnxruntime(model, [{"x": normal(0, 2, 3, 5)}, {"x": normal(0, 2, 7, 5)}])
