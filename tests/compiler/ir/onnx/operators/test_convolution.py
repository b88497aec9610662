"""Convolutions and their transposes, fixed weights and weights of any extents, against ONNX
Runtime.
"""

from typing import Any

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

IMAGES = [
    {"x": normal(*shape)} for shape in ((1, 4, 5, 5), (2, 4, 7, 9), (0, 4, 6, 5), (3, 4, 13, 6))
]


def test_conv_attributes() -> None:
    constants = {
        "w": normal(6, 4, 3, 3),
        "grouped": normal(8, 2, 3, 2),
        "depthwise": normal(4, 1, 3, 3),
        "bias": normal(6),
    }
    cases: list[tuple[str, dict[str, Any]]] = [
        ("w", {}), ("w", {"strides": [2, 2], "pads": [1, 1, 1, 1]}), ("grouped", {"group": 2,
        "dilations": [2, 1]}),
        ("depthwise", {"group": 4, "pads": [1, 1, 1, 1]}), ("w", {"auto_pad": "SAME_UPPER",
        "strides": [2, 3]}),
        ("w", {"auto_pad": "SAME_LOWER", "strides": [2, 2]}), ("w", {"auto_pad": "VALID"}),
        ("w", {"pads": [0, 1, 2, 1], "strides": [1, 2]}),
    ]  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", weight], [f"y{index}"], **attributes)
        for index, (weight, attributes) in enumerate(cases)
    ]
    nodes.append(helper.make_node("Conv", ["x", "w", "bias"], ["biased"]))
    assert_like_onnxruntime(model_of(nodes, {"x": "float32[n,4,h,w]"}, constants), IMAGES)


def test_conv_transpose_attributes() -> None:
    constants = {
        "w": normal(4, 6, 3, 3),
        "grouped": normal(4, 3, 3, 2),
        "tiles": normal(4, 6, 2, 2),
        "even": normal(4, 5, 4, 4),
        "bias": normal(6),
    }
    cases: list[tuple[str, dict[str, Any]]] = [
        ("w", {}), ("w", {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}),
        ("grouped", {"group": 2, "dilations": [2, 1], "strides": [2, 1]}),
        ("tiles", {"strides": [2, 2]}),
        ("w", {"auto_pad": "SAME_UPPER", "strides": [2, 3]}), ("w", {"auto_pad": "SAME_LOWER",
        "strides": [2, 2]}),
        ("even", {"strides": [2, 2], "pads": [1, 1, 1, 1]}), ("w", {"strides": [3, 3],
        "pads": [0, 1, 1, 0]}),
        ("grouped", {"group": 2, "strides": [3, 2], "pads": [1, 0, 1, 1]}),
        ("tiles", {"strides": [3, 3], "output_padding": [1, 2]}),
        ("even", {"strides": [1, 2], "pads": [3, 2, 3, 2]}), ("even", {"strides": [2, 2],
        "output_padding": [1, 1]}),
    ]  # fmt: skip
    nodes = [
        helper.make_node("ConvTranspose", ["x", weight], [f"y{index}"], **kw)
        for index, (weight, kw) in enumerate(cases)
    ]
    nodes.append(
        helper.make_node("ConvTranspose", ["x", "tiles", "bias"], ["biased"], strides=[2, 2])
    )
    assert_like_onnxruntime(model_of(nodes, {"x": "float32[n,4,h,w]"}, constants), IMAGES)


def test_transposed_output_shape() -> None:
    nodes = [
        helper.make_node(
            "ConvTranspose",
            ["x", "w"],
            [f"y{pad}"],
            strides=[2, 2],
            output_shape=[10, 8],
            auto_pad=pad,
        )
        for pad in ("NOTSET", "SAME_UPPER", "SAME_LOWER")
    ]
    model = model_of(nodes, {"x": "float32[n,2,5,4]"}, {"w": normal(2, 3, 3, 3)})
    assert_like_onnxruntime(model, [{"x": normal(n, 2, 5, 4)} for n in (1, 3)])


@pytest.mark.parametrize(
    ("axes", "shapes"),
    [("l", [(2, 3, 4), (1, 3, 17)]), ("d,h,w", [(2, 3, 4, 5, 3), (1, 3, 3, 3, 3)])],
)
def test_other_ranks(axes: str, shapes: list[tuple[int, ...]]) -> None:
    rank = len(axes.split(","))
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["conv"], pads=[1] * (2 * rank), strides=[2] * rank),
        helper.make_node("ConvTranspose", ["x", "t"], ["transposed"], strides=[2] * rank),
    ]
    constants = {"w": normal(5, 3, *[3] * rank), "t": normal(3, 4, *[2] * rank)}
    assert_like_onnxruntime(
        model_of(nodes, {"x": f"float32[n,3,{axes}]"}, constants),
        [{"x": normal(*shape)} for shape in shapes],
    )


def test_weights_of_any_extents() -> None:
    nodes = [helper.make_node("Conv", ["x", "w", "bias"], ["y"], group=2, pads=[1, 1, 1, 1])]
    model = model_of(
        nodes, {"x": "float32[n,c,h,w0]", "w": "float32[o,i,kh,kw]", "bias": "float32[o]"}
    )
    feeds = [
        {"x": normal(n, 2 * i, 6, 5), "w": normal(2 * o, i, k, k + 1), "bias": normal(2 * o)}
        for n, i, o, k in ((1, 1, 1, 1), (2, 3, 2, 3), (1, 2, 5, 2))
    ]
    assert_like_onnxruntime(model, feeds)


def test_half_precision_accumulates_in_single() -> None:
    x, w = normal(1, 64, 6, 6, dtype="float16"), normal(3, 64, 3, 3, dtype="float16")
    half = model_of(
        [helper.make_node("Conv", ["x", "w"], ["y"])], {"x": "float16[n,64,h,v]"}, {"w": w}
    )
    single = model_of(
        [helper.make_node("Conv", ["x", "w"], ["y"])],
        {"x": "float32[n,64,h,v]"},
        {"w": w.astype("float32")},
    )
    wanted = build(single).run({"x": x.astype("float32")})[0]
    assert_close(build(half).run({"x": x}), [wanted.astype("float16")], ["y"], 1e-3)


def test_strides_halve_a_dim_that_is_a_multiple() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["small"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Resize", ["small", "", "scales"], ["large"]),
        helper.make_node("Add", ["x", "large"], ["y"]),
    ]
    constants = {"w": normal(3, 3, 3, 3), "scales": np.array([1, 1, 2, 2], np.float32)}
    model = model_of(nodes, {"x": "float32[n,3,h,w0]"}, constants, outputs=["y"])
    even = {"h": "2:64%2", "w0": "2:64%2"}
    built = assert_like_onnxruntime(
        model, [{"x": normal(1, 3, 4, 6)}, {"x": normal(2, 3, 8, 2)}], even
    )
    assert "tensor_to_shape" not in built.imported.module["main"].script()


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"auto_pad": "SAME"}, "none of NOTSET"),
        ({"strides": [1]}, "2 spatial axes"),
        ({"strides": [0, 1]}, "must be positive"),
        ({"kernel_shape": [5, 5]}, "contradicts"),
        ({"group": 3}, "channels"),
    ],
)
def test_refusals_name_the_attribute(attributes: dict[str, object], message: str) -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="broken", **attributes)
    with pytest.raises(ImportFailed, match=message) as caught:
        build(model_of([node], {"x": "float32[n,4,h,w0]"}, {"w": normal(6, 4, 3, 3)}))
    assert caught.value.failure.node == "broken"


def test_an_input_smaller_than_the_kernel_fails_at_run_time() -> None:
    built = build(
        model_of(
            [helper.make_node("Conv", ["x", "w"], ["y"])],
            {"x": "float32[1,2,h,8]"},
            {"w": normal(2, 2, 5, 5)},
        )
    )
    assert built.run({"x": normal(1, 2, 5, 8)})[0].shape == (1, 2, 1, 4)
    with pytest.raises(RuntimeError):
        built.run({"x": normal(1, 2, 2, 8)})
