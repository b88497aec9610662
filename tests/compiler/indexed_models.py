"""Small models that read indices, lengths, sizes and regions from their inputs, by name, with the
dims that they are compiled for.
"""

from typing import Any

import numpy as np
import onnx
from onnx import helper

from tests.compiler.ir.onnx.running import model_of

Case = tuple[onnx.ModelProto, dict[str, Any]]
_WEIGHTS = np.random.default_rng(0)


def _model(op: str, inputs: dict[str, str], names: list[str], opset: int = 22, **more: Any) -> Any:
    constants = more.pop("constants", None)
    outputs = more.pop("outputs", ["y"])
    node = helper.make_node(op, names, outputs, **more)
    return model_of([node], inputs, constants, opset)


def _layer(kind: str, gates: int, **more: Any) -> onnx.ModelProto:
    constants = {
        "w": _WEIGHTS.standard_normal((1, gates * 5, 3)).astype(np.float32),
        "r": _WEIGHTS.standard_normal((1, gates * 5, 5)).astype(np.float32),
        "bias": _WEIGHTS.standard_normal((1, 2 * gates * 5)).astype(np.float32),
    }
    inputs = {"x": "float32[t,b,3]", "lens": "int32[b]", "h": "float32[1,b,5]"}
    names = ["x", "w", "r", "bias", "lens", "h"]
    return _model(
        kind, inputs, names, outputs=["y", "yh"], constants=constants, hidden_size=5, **more
    )


T = {"t": (1, 9), "b": (1, 4)}
ND = {"n": (1, 12), "m": (1, 9)}

MODELS: dict[str, Case] = {
    "lstm": (_layer("LSTM", 4), T),
    "gru": (_layer("GRU", 3), T),
    "rnn": (_layer("RNN", 1, direction="reverse"), T),
    "roi_align": (
        _model(
            "RoiAlign",
            {"x": "float32[n,3,h,8]", "rois": "float32[r,4]", "batch": "int64[r]"},
            ["x", "rois", "batch"],
            output_height=2,
            output_width=2,
            spatial_scale=0.5,
        ),
        {"n": (1, 2), "h": (2, 9), "r": (1, 4)},
    ),
    "max_roi_pool": (
        _model(
            "MaxRoiPool",
            {"x": "float32[n,3,h,8]", "rois": "float32[r,5]"},
            ["x", "rois"],
            opset=19,
            pooled_shape=[2, 2],
        ),
        {"n": (1, 2), "h": (2, 9), "r": (1, 4)},
    ),
    "gather": (
        _model("Gather", {"x": "float32[n,4]", "ids": "int64[m]"}, ["x", "ids"]),
        ND,
    ),
    "gather_elements": (
        _model("GatherElements", {"x": "float32[n,4]", "ids": "int64[m,4]"}, ["x", "ids"]),
        ND,
    ),
    "gather_nd": (
        _model("GatherND", {"x": "float32[n,4]", "ids": "int64[m,2]"}, ["x", "ids"]),
        ND,
    ),
    "scatter_elements": (
        _model(
            "ScatterElements",
            {"x": "float32[n,4]", "ids": "int64[m,4]", "new": "float32[m,4]"},
            ["x", "ids", "new"],
        ),
        {"n": (9, 20), "m": (1, 9)},
    ),
    "scatter_nd": (
        _model(
            "ScatterND",
            {"x": "float32[n,4]", "ids": "int64[m,2]", "new": "float32[m]"},
            ["x", "ids", "new"],
        ),
        {"n": (3, 20), "m": (1, 9)},
    ),
    "tensor_scatter": (
        _model(
            "TensorScatter",
            {"x": "float32[b,2,t,4]", "new": "float32[b,2,s,4]", "at": "int64[b]"},
            ["x", "new", "at"],
            opset=24,
        ),
        {"b": (1, 3), "t": (6, 12), "s": (1, 6)},
    ),
    "reverse_sequence": (
        _model("ReverseSequence", {"x": "float32[t,b,2]", "lens": "int64[b]"}, ["x", "lens"]),
        T,
    ),
    "top_k": (
        _model("TopK", {"x": "float32[n,m]", "k": "int64[1]"}, ["x", "k"], outputs=["y", "places"]),
        ND,
    ),
    "split": (
        _model(
            "Split",
            {"x": "float32[n,4]", "sizes": "int64[3]"},
            ["x", "sizes"],
            outputs=["y", "z", "w"],
        ),
        {"n": (1, 12)},
    ),
    "max_unpool": (
        _model(
            "MaxUnpool",
            {"x": "float32[n,2,h,4]", "ids": "int64[n,2,h,4]"},
            ["x", "ids"],
            kernel_shape=[2, 2],
            strides=[2, 2],
        ),
        {"n": (1, 2), "h": (1, 7)},
    ),
    "nll_loss": (
        _model(
            "NegativeLogLikelihoodLoss",
            {"x": "float32[n,c]", "target": "int64[n]"},
            ["x", "target"],
        ),
        {"n": (1, 9), "c": (2, 7)},
    ),
    "rotary": (
        _model(
            "RotaryEmbedding",
            {
                "x": "float32[n,2,s,4]",
                "cos": "float32[p,2]",
                "sin": "float32[p,2]",
                "ids": "int64[n,s]",
            },
            ["x", "cos", "sin", "ids"],
            opset=23,
        ),
        {"n": (1, 2), "s": (1, 9), "p": (9, 11)},
    ),
    "attention": (
        _model(
            "Attention",
            {
                "q": "float32[n,2,s,4]",
                "k": "float32[n,2,t,4]",
                "v": "float32[n,2,t,4]",
                "lens": "int64[n]",
            },
            ["q", "k", "v", "", "", "", "lens"],
            opset=24,
        ),
        {"n": (1, 2), "s": (1, 9), "t": (1, 9)},
    ),
    "compress_all": (
        _model("Compress", {"x": "float32[n,4]", "keep": "bool[9]"}, ["x", "keep"], axis=0),
        {"n": (9, 20)},
    ),
    "reshape": (
        _model("Reshape", {"x": "float32[n,4]", "to": "int64[3]"}, ["x", "to"]),
        {"n": (1, 12)},
    ),
    "expand": (
        _model("Expand", {"x": "float32[n,1]", "to": "int64[3]"}, ["x", "to"]),
        {"n": (1, 9)},
    ),
    "cumsum": (
        _model("CumSum", {"x": "float32[n,4]", "axis": "int64[]"}, ["x", "axis"]),
        {"n": (1, 9)},
    ),
    "pad_reflect": (
        _model("Pad", {"x": "float32[n,4]", "pads": "int64[4]"}, ["x", "pads"], mode="reflect"),
        {"n": (1, 9)},
    ),
    "tile": (
        _model("Tile", {"x": "float32[n,3,4,2]", "times": "int64[4]"}, ["x", "times"]),
        {"n": (1, 9)},
    ),
}
