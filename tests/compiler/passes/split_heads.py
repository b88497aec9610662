"""The nodes in front of an attention in exported graphs: they split heads off rows."""

from typing import Any

import numpy as np
import onnx
from onnx import helper


def split_heads(heads: int, depth: int, width: int) -> tuple[list[onnx.NodeProto], dict[str, Any]]:
    """Nodes that take rows q, k and v [b, n, heads * depth or width] to q2 [b, heads, n, depth], k2
    [b, heads, depth, n] and v2 [b, heads, n, width]; and their constants, by name, with `joined`,
    the shape that joins heads of the width again.
    """
    constants: dict[str, Any] = {"joined": np.array([0, 0, heads * width])}
    nodes = []
    for name, size, axes in (
        ("q", depth, [0, 2, 1, 3]),
        ("k", depth, [0, 2, 3, 1]),
        ("v", width, [0, 2, 1, 3]),
    ):
        constants[f"{name}_heads"] = np.array([0, 0, heads, size])
        nodes += [
            helper.make_node("Reshape", [name, f"{name}_heads"], [f"{name}1"]),
            helper.make_node("Transpose", [f"{name}1"], [f"{name}2"], perm=axes),
        ]
    return nodes, constants
