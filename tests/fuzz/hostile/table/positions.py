"""Gathers, scatters and their kin: integers that address an axis."""

import numpy as np
from onnx import TensorProto, helper

from tests.fuzz.hostile.subject import Subject, subject
from tests.fuzz.hostile.values import index, integer, length, real

_NODE = helper.make_node
_PAIR = {"x": "float32[n,c]", "i": "int64[n,k]"}


def _written(label: str, axis: int, reduction: str) -> Subject:
    inputs = {"x": "float32[n,c]", "i": "int64[a,b]", "u": "float32[a,b]"}
    # The indices' other axis may be no longer than the data's.
    dims = {"a": (1, 2), "b": (1, 2), "n": (2, 5), "c": (2, 5)}
    return subject(
        "ScatterElements",
        inputs,
        {"i": index(("n", "c")[axis])},
        label=label,
        dims=dims,
        reference=False,
        axis=axis,
        reduction=reduction,
    )


SUBJECTS = (
    subject("Gather", {"x": "float32[n,c]", "i": "int64[k]"}, {"i": index("n")}),
    subject(
        "Gather", {"x": "float32[n,c]", "i": "int32[k,2]"}, {"i": index("c")}, axis=1, label="32"
    ),
    subject("Gather", {"x": "float32[n,c]", "i": "int64[]"}, {"i": index("n")}, label="scalar"),
    subject("GatherElements", _PAIR, {"i": index("c")}, axis=1),
    subject("GatherND", {"x": "float32[n,c,3]", "i": "int64[k,2]"}, {"i": index("min(n,c)")}),
    subject(
        "GatherND",
        {"x": "float32[n,c,3]", "i": "int64[n,k,1]"},
        {"i": index("c")},
        batch_dims=1,
        label="batch",
    ),
    *(
        _written(f"{reduction}-{axis}", axis, reduction)
        for reduction in ("none", "add")
        for axis in (0, 1)
    ),
    *(
        subject(
            "ScatterND",
            {"x": "float32[n,c]", "i": "int64[k,2]", "u": "float32[k]"},
            {"i": index("min(n,c)")},
            reduction=r,
            label=r,
            reference=False,
        )
        for r in ("none", "max")
    ),
    *(
        subject(
            "TensorScatter",
            {"x": "float32[b,t,2]", "u": "float32[b,s,2]", "i": "int64[b]"},
            {"i": integer(0, "t-s")},
            dims={"t": (5, 9)},
            mode=mode,
            label=mode,
            opset=24,
            reference=False,
        )
        for mode in ("linear", "circular")
    ),
    subject(
        "OneHot",
        {"i": "int64[n]", "d": "int64[]", "v": "float32[2]"},
        {"i": index("n"), "d": integer(1, 6)},
    ),
    subject("ReverseSequence", {"x": "float32[t,b,2]", "l": "int64[b]"}, {"l": length("t")}),
    subject(
        "ReverseSequence",
        {"x": "float32[b,t]", "l": "int64[b]"},
        {"l": length("t")},
        batch_axis=0,
        time_axis=1,
        label="batch",
    ),
    subject("Trilu", {"x": "float32[n,c]", "k": "int64[]"}, {"k": integer(-5, 5)}),
    subject("Compress", {"x": "float32[n,c]", "m": "bool[k]"}, {}, axis=0),
    subject(
        "ArrayFeatureExtractor",
        {"x": "float32[n,c]", "i": "int64[1,k]"},
        {"i": index("c")},
        domain="ai.onnx.ml",
    ),
    subject("TopK", {"x": "float32[n,c]", "k": "int64[1]"}, {"k": integer(1, "c")}, makes=2),
    Subject(
        "SequenceAt",
        [
            _NODE("SequenceConstruct", ["a", "b"], ["s"]),
            _NODE("SequenceAt", ["s", "i"], ["y"], "node"),
        ],
        {"a": "float32[n]", "b": "float32[n]", "i": "int64[]"},
        {"i": index(2)},
        outputs=["y"],
    ),
    Subject(
        "SequenceAt-run-time",
        [_NODE("SplitToSequence", ["x"], ["s"]), _NODE("SequenceAt", ["s", "i"], ["y"], "node")],
        {"x": "float32[n,2]", "i": "int64[]"},
        {"i": index("n")},
        outputs=["y"],
    ),
    *(
        subject(
            "NegativeLogLikelihoodLoss",
            {"x": "float32[n,c,t]", "l": "int64[n,t]", "w": "float32[c]"},
            {"l": integer(0, "c-1")},
            reduction=r,
            label=r,
            **({"ignore_index": -1} if r == "mean" else {}),
        )
        for r in ("none", "mean")
    ),
    subject(
        "SoftmaxCrossEntropyLoss", {"x": "float32[n,c]", "l": "int64[n]"}, {"l": integer(0, "c-1")}
    ),
    subject(
        "NonMaxSuppression",
        {
            "b": "float32[1,n,4]",
            "s": "float32[1,c,n]",
            "m": "int64[1]",
            "o": "float32[1]",
            "t": "float32[1]",
        },
        {"b": real(0, 1), "s": real(0, 1), "m": integer(0, 5), "o": real(0, 1), "t": real(0, 1)},
        reference=False,
    ),
    subject("Unique", {"x": "float32[n,c]"}, {"x": real(-1, 1)}, makes=4, axis=0, reference=False),
    subject("CumSum", {"x": "float32[n,c]", "a": "int64[]"}, {"a": integer(-2, 1)}),
    Subject(
        "EmbedLayerNormalization",
        [
            _NODE(
                "EmbedLayerNormalization",
                ["i", "g", "w", "p", "q", "gamma", "beta", "", "j"],
                ["y", "m"],
                "node",
                domain="com.microsoft",
            )
        ],
        {"i": "int32[b,s]", "g": "int32[b,s]", "j": "int32[b,s]"},
        {"i": index(7), "g": index(2), "j": index(5)},
        {
            name: np.ones(shape, np.float32)
            for name, shape in (
                ("w", (7, 4)),
                ("p", (5, 4)),
                ("q", (2, 4)),
                ("gamma", 4),
                ("beta", 4),
            )
        },
        outputs=["y"],
        reference=False,
    ),
    Subject(
        "GatherBlockQuantized",
        [
            _NODE(
                "GatherBlockQuantized",
                ["d", "i", "s"],
                ["y"],
                "node",
                domain="com.microsoft",
                bits=4,
                block_size=16,
                quantize_axis=1,
            )
        ],
        {"i": "int64[n,k]"},
        {"i": index(7)},
        {"d": np.arange(7 * 16, dtype=np.uint8).reshape(7, 16), "s": np.ones((7, 2), np.float32)},
        reference=False,
    ),
    Subject(
        "OneHotEncoder",
        [
            _NODE(
                "OneHotEncoder",
                ["x"],
                ["y"],
                "node",
                domain="ai.onnx.ml",
                cats_int64s=[1, 5, 7],
                zeros=0,
            )
        ],
        {"x": "int64[n]"},
        {"x": integer(1, 7)},
    ),
    Subject(
        "TreeEnsembleRegressor",
        [
            _NODE(
                "TreeEnsembleRegressor",
                ["x"],
                ["y"],
                "node",
                domain="ai.onnx.ml",
                n_targets=1,
                nodes_treeids=[0, 0, 0],
                nodes_nodeids=[0, 1, 2],
                nodes_featureids=[2, 0, 0],
                nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"],
                nodes_values=[0.5, 0.0, 0.0],
                nodes_truenodeids=[1, 0, 0],
                nodes_falsenodeids=[2, 0, 0],
                target_treeids=[0, 0],
                target_nodeids=[1, 2],
                target_ids=[0, 0],
                target_weights=[1.0, 2.0],
            )
        ],
        {"x": "float32[n,c]"},
        {"x": real(0, 1)},
        dims={"c": (1, 5)},
        reference=False,
    ),
    Subject(
        "Cast-and-Gather",
        [
            _NODE("Cast", ["f"], ["i"], to=TensorProto.INT64),
            _NODE("Gather", ["x", "i"], ["y"], "node"),
        ],
        {"x": "float32[n,c]", "f": "float32[k]"},
        {"f": real(0, 1)},
        outputs=["y"],
        reference=False,
    ),
)
