"""Integers that are extents, counts, bounds of slices, trip counts and divisors."""

import numpy as np
from onnx import TensorProto, helper

from tests.fuzz.hostile.subject import Subject, subject
from tests.fuzz.hostile.values import SIZES, integer

_NODE = helper.make_node
_DATA = "float32[n,c]"


def _loop() -> Subject:
    body = helper.make_graph(
        [
            _NODE("Add", ["state", "state"], ["next"]),
            _NODE("Identity", ["going"], ["goes"]),
            _NODE("Identity", ["next"], ["row"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, ["n"]),
        ],
        [helper.make_empty_tensor_value_info(name) for name in ("goes", "next", "row")],
    )
    nodes = [
        # A million iterations are no fault: the trip counts stay below a few hundred.
        _NODE("Min", ["m", "most"], ["trips"]),
        _NODE("Loop", ["trips", "", "x"], ["y", "rows"], "node", body=body),
    ]
    return Subject(
        "Loop",
        nodes,
        {"m": "int64[]", "x": "float32[n]"},
        {"m": integer(0, 4)},
        {"most": np.array(200)},
        outputs=["y", "rows"],
        reference=False,
    )


def _divided(op: str, dtype: str, **more: object) -> Subject:
    inputs = {"a": f"{dtype}[n]", "b": f"{dtype}[n]"}
    return subject(
        op,
        inputs,
        {"a": integer(-9, 9) if dtype[0] == "i" else integer(0, 9), "b": integer(1, 9)},
        label=dtype,
        **more,
    )


SUBJECTS = (
    *(_divided("Div", dtype) for dtype in ("int64", "int32", "int8", "uint8")),
    *(_divided("Mod", dtype) for dtype in ("int64", "int32", "int8")),
    subject(
        "Mod",
        {"a": "int64[n]", "b": "int64[n]"},
        {"a": integer(-9, 9), "b": integer(1, 9)},
        fmod=1,
        label="fmod",
        # ONNX Runtime divides as float64, which holds no integers of 64 bits.
        reference=False,
    ),
    subject(
        "BitShift",
        {"a": "uint64[n]", "b": "uint64[n]"},
        {"a": integer(0, 9), "b": integer(0, 63)},
        direction="LEFT",
        reference=False,
    ),
    subject(
        "Range",
        {"a": "int64[]", "b": "int64[]", "d": "int64[]"},
        {"a": integer(-3, 3), "b": integer(-3, 9), "d": integer(1, 3)},
    ),
    subject("Split", {"x": _DATA, "s": "int64[2]"}, {"s": integer(0, "n")}, makes=2),
    Subject(
        "SplitToSequence",
        [
            _NODE("SplitToSequence", ["x", "s"], ["q"], "node"),
            _NODE("SequenceAt", ["q", "i"], ["y"]),
        ],
        {"x": _DATA, "s": "int64[2]"},
        {"s": integer(0, "n")},
        {"i": np.array(0)},
        outputs=["y"],
    ),
    subject("Expand", {"x": _DATA, "s": "int64[2]"}, {"s": SIZES}),
    subject("Tile", {"x": _DATA, "s": "int64[2]"}, {"s": SIZES}),
    subject("Pad", {"x": _DATA, "s": "int64[4]"}, {"s": integer(0, 3)}),
    *(
        subject(
            "Pad",
            {"x": _DATA, "s": "int64[4]"},
            {"s": integer(0, 3)},
            mode=mode,
            label=mode,
            reference=False,
        )
        for mode in ("reflect", "edge", "wrap")
    ),
    subject("ConstantOfShape", {"s": "int64[2]"}, {"s": SIZES}),
    subject("Reshape", {"x": _DATA, "s": "int64[2]"}, {"s": SIZES}),
    subject(
        "Slice",
        {"x": _DATA, "a": "int64[1]", "b": "int64[1]"},
        {"a": integer("-n", "n"), "b": integer("-n", "n")},
    ),
    Subject(
        "Slice-down",
        [_NODE("Slice", ["x", "a", "b", "axes", "steps"], ["y"], "node")],
        {"x": _DATA, "a": "int64[1]", "b": "int64[1]"},
        {"a": integer("-n", "n"), "b": integer("-n", "n")},
        {"axes": np.array([0]), "steps": np.array([-1])},
        # ONNX Runtime takes the greatest integers for the end in front of the first element.
        reference=False,
    ),
    Subject(
        "ConstantOfShape-Expand-Gather",
        [
            _NODE("Range", ["zero", "k", "one"], ["r"]),
            _NODE("Gather", ["x", "r"], ["y"], "node"),
        ],
        {"x": _DATA, "k": "int64[]"},
        {"k": integer(0, "n")},
        {"zero": np.array(0), "one": np.array(1)},
        outputs=["y"],
    ),
    _loop(),
)
