"""Attention and its caches, positions of tokens, experts."""

import numpy as np
from onnx import helper

from tests.fuzz.hostile.subject import Subject, subject
from tests.fuzz.hostile.values import index, integer, length, real

_NODE = helper.make_node
MICROSOFT = "com.microsoft"


def _group_query(label: str, **more: object) -> Subject:
    rotary = {"c": "float32[9,4]", "d": "float32[9,4]"} if more.get("do_rotary") else {}
    return subject(
        "GroupQueryAttention",
        {
            "q": "float32[b,s,16]",
            "k": "float32[b,s,8]",
            "v": "float32[b,s,8]",
            "p": "float32[b,1,t,8]",
            "o": "float32[b,1,t,8]",
            "l": "int32[b]",
            "a": "int32[]",
            **rotary,
        },
        {"l": integer("s-1", "t-1"), "a": integer("s", "t")},
        domain=MICROSOFT,
        num_heads=2,
        kv_num_heads=1,
        makes=3,
        label=label,
        dims={"t": (5, 9), "s": (1, 3)},
        reference=False,
        **more,
    )


SUBJECTS = (
    _group_query("plain"),
    _group_query("rotary", do_rotary=1),
    _group_query("window", local_window_size=2),
    subject(
        "Attention",
        {
            "q": "float32[b,2,s,4]",
            "k": "float32[b,2,t,4]",
            "v": "float32[b,2,t,4]",
            "l": "int64[b]",
        },
        {"l": length("t")},
        given=["q", "k", "v", "", "", "", "l"],
        opset=24,
        reference=False,
    ),
    subject(
        "RotaryEmbedding",
        {"x": "float32[b,2,s,4]", "c": "float32[t,2]", "d": "float32[t,2]", "i": "int64[b,s]"},
        {"i": index("t")},
        opset=23,
        reference=False,
    ),
    subject(
        "RotaryEmbedding",
        {"x": "float32[b,s,8]", "i": "int64[b,s]", "c": "float32[t,2]", "d": "float32[t,2]"},
        {"i": index("t")},
        domain=MICROSOFT,
        num_heads=2,
        label="microsoft",
        reference=False,
    ),
    subject(
        "RotaryEmbedding",
        {"x": "float32[b,s,8]", "i": "int64[1]", "c": "float32[9,2]", "d": "float32[9,2]"},
        {"i": integer(0, 4)},
        domain=MICROSOFT,
        num_heads=2,
        label="offset",
        reference=False,
    ),
    subject(
        "MultiHeadAttention",
        {"q": "float32[b,s,8]", "k": "float32[b,t,8]", "v": "float32[b,t,8]", "m": "int32[b]"},
        {"m": length("t")},
        given=["q", "k", "v", "", "m"],
        domain=MICROSOFT,
        num_heads=2,
        label="lengths",
        reference=False,
    ),
    subject(
        "Attention",
        {"x": "float32[b,s,8]", "w": "float32[8,24]", "z": "float32[24]", "m": "int32[b]"},
        {"m": length("s")},
        domain=MICROSOFT,
        num_heads=2,
        label="microsoft",
        reference=False,
    ),
    Subject(
        "MoE",
        [
            _NODE(
                "MoE",
                ["x", "r", "a", "", "z"],
                ["y"],
                "node",
                domain=MICROSOFT,
                k=2,
                activation_type="relu",
            )
        ],
        {"x": "float32[n,4]", "r": "float32[n,3]"},
        {"r": real(-1, 1)},
        {"a": np.ones((3, 8, 4), np.float32), "z": np.ones((3, 4, 8), np.float32)},
        reference=False,
    ),
)
