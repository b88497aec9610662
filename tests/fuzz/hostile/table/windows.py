"""Images sampled where floats say, regions, pooling undone, and signals cut into frames."""

import numpy as np
from onnx import helper

from tests.fuzz.hostile.subject import Subject, subject
from tests.fuzz.hostile.values import integer, length, real

_NODE = helper.make_node
_IMAGE = "float32[n,2,h,w]"


def _resize(what: str, label: str, opset: int = 21, **more: object) -> Subject:
    inputs = {"x": _IMAGE}
    draws = {"s": real(0.3, 3), "z": integer(1, 6), "r": real(0, 1)}
    if what == "roi":
        inputs |= {"r": "float32[8]", "s": "float32[4]"}
        arguments = ["x", "r", "s"]
    else:
        inputs |= {"s": "float32[4]"} if what == "scales" else {"z": "int64[4]"}
        arguments = ["x", "", "s"] if what == "scales" else ["x", "", "", "z"]
    return subject(
        "Resize",
        inputs,
        draws,
        given=arguments,
        label=f"{what}-{label}",
        opset=opset,
        reference=False,
        **more,
    )


SUBJECTS = (
    *(
        subject(
            "GridSample",
            {"x": _IMAGE, "g": "float32[n,a,b,2]"},
            {"g": real(-1, 1)},
            mode=mode,
            padding_mode=padding,
            align_corners=corners,
            label=f"{mode}-{padding}-{corners}",
            reference=False,
        )
        for mode, padding, corners in (
            ("linear", "zeros", 0),
            ("linear", "border", 1),
            ("linear", "reflection", 0),
            ("nearest", "zeros", 1),
            ("nearest", "border", 0),
            ("nearest", "reflection", 1),
            ("cubic", "zeros", 0),
            ("cubic", "border", 0),
            ("cubic", "reflection", 0),
            ("cubic", "reflection", 1),
        )
    ),
    subject(
        "AffineGrid",
        {"t": "float32[n,2,3]", "z": "int64[4]"},
        {"t": real(-1, 1), "z": integer(1, 4)},
        reference=False,
    ),
    subject(
        "DeformConv",
        {"x": "float32[n,2,h,w]", "k": "float32[3,2,3,3]", "o": "float32[n,18,h,w]"},
        {"o": real(-2, 2)},
        pads=[1, 1, 1, 1],
        reference=False,
    ),
    *(
        subject(
            "RoiAlign",
            {"x": _IMAGE, "r": "float32[k,4]", "i": "int64[k]"},
            {"r": real(0, 5), "i": integer(0, "n-1")},
            mode=mode,
            sampling_ratio=ratio,
            output_height=2,
            output_width=3,
            label=f"{mode}-{ratio}",
            # A region may have a million samples a bin.
            dims={"k": (1, 2)},
            reference=False,
        )
        for mode, ratio in (("avg", 2), ("avg", 0), ("max", 2), ("max", 0))
    ),
    subject(
        "MaxRoiPool",
        {"x": _IMAGE, "r": "float32[k,5]"},
        {"r": real(0, 3)},
        pooled_shape=[2, 2],
        reference=False,
    ),
    subject(
        "MaxUnpool",
        {"x": "float32[n,1,h,w]", "i": "int64[n,1,h,w]"},
        {"i": integer(0, "n*h*w*4-1")},
        kernel_shape=[2, 2],
        strides=[2, 2],
        reference=False,
    ),
    subject(
        "MaxUnpool",
        {"x": "float32[n,1,h,w]", "i": "int64[n,1,h,w]", "z": "int64[4]"},
        {"i": integer(0, "n*h*w*4-1"), "z": integer(1, 12)},
        kernel_shape=[2, 2],
        strides=[2, 2],
        label="shape",
        reference=False,
    ),
    _resize("scales", "nearest", mode="nearest"),
    _resize("scales", "linear", mode="linear"),
    _resize("scales", "cubic", mode="cubic"),
    _resize("scales", "antialias", mode="linear", antialias=1),
    _resize("sizes", "nearest", mode="nearest"),
    _resize("sizes", "linear", mode="linear"),
    _resize(
        "sizes", "aspect", mode="linear", keep_aspect_ratio_policy="not_larger", axes=[0, 1, 2, 3]
    ),
    _resize("roi", "linear", mode="linear", coordinate_transformation_mode="tf_crop_and_resize"),
    _resize("roi", "nearest", mode="nearest", coordinate_transformation_mode="tf_crop_and_resize"),
    subject(
        "Upsample", {"x": _IMAGE, "s": "float32[4]"}, {"s": real(1, 3)}, opset=9, reference=False
    ),
    subject(
        "CenterCropPad",
        {"x": "float32[n,h]", "z": "int64[2]"},
        {"z": integer(1, 7)},
    ),
    subject("DFT", {"x": "float32[n,t,1]", "l": "int64[]"}, {"l": integer(1, 6)}, opset=17, axis=1),
    subject(
        "DFT",
        {"x": "float32[n,t,1]", "l": "int64[]", "a": "int64[]"},
        {"l": integer(1, 6), "a": integer(-2, 1)},
        opset=20,
        label="axis",
    ),
    subject(
        "STFT",
        {"x": "float32[n,t,1]", "s": "int64[]", "w": "float32[4]"},
        {"s": integer(1, 4)},
        dims={"t": (4, 9)},
        reference=False,
    ),
    subject(
        "STFT",
        {"x": "float32[n,t,1]", "s": "int64[]", "l": "int64[]"},
        {"s": integer(1, 4), "l": integer(1, 4)},
        given=["x", "s", "", "l"],
        dims={"t": (4, 9)},
        label="length",
        reference=False,
    ),
    *(
        subject(op, {"z": "int64[]"}, {"z": integer(1, 9)}, reference=False)
        for op in ("HannWindow", "HammingWindow", "BlackmanWindow")
    ),
    subject(
        "MelWeightMatrix",
        {"b": "int64[]", "d": "int64[]", "s": "int64[]", "l": "float32[]", "u": "float32[]"},
        {
            "b": integer(1, 8),
            "d": integer(1, 16),
            "s": integer(1, 8000),
            "l": real(0, 100),
            "u": real(100, 4000),
        },
        reference=False,
    ),
    subject(
        "Col2Im",
        {"x": "float32[n,4,c]", "z": "int64[2]", "k": "int64[2]"},
        {"z": integer(1, 4), "k": integer(1, 2)},
        reference=False,
    ),
    *(
        Subject(
            op,
            [
                _NODE("Cast", ["l"], ["short"], to=6),
                _NODE(
                    op,
                    ["x", "w", "r", "", "short"],
                    ["y", "h"],
                    "node",
                    hidden_size=3,
                    direction=direction,
                ),
            ],
            {"x": "float32[t,b,2]", "l": "int64[b]"},
            {"l": length("t")},
            {
                "w": np.ones((2, gates * 3, 2), np.float32),
                "r": np.ones((2, gates * 3, 3), np.float32),
            },
            outputs=["y", "h"],
            reference=False,
        )
        for op, gates, direction in (
            ("RNN", 1, "bidirectional"),
            ("GRU", 3, "bidirectional"),
            ("LSTM", 4, "bidirectional"),
        )
    ),
)
