"""Where ONNX Runtime 1.31 is known to depart from the operators' specification, so that it is no
reference.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx
from onnx import helper

from compiler.ir.onnx.walking import walk

_NO_DEFAULTS = {"thresholdedrelu": ("activation_alpha",), "affine": (), "scaledtanh": ()}
"""Activations whose numbers ONNX Runtime takes for zeros where they are not given."""


def of_onnxruntime(model: onnx.ModelProto) -> list[str]:
    """By node that ONNX Runtime computes otherwise, why; empty for nearly every model."""
    nodes = walk((*model.graph.node, *(n for f in model.functions for n in f.node)))
    found = []
    for node in nodes:
        check = _CHECKS.get(node.op_type)
        if check is not None and node.domain in ("", "ai.onnx") and (why := check(node)):
            found.append(f"{node.name or node.output[0]} ({node.op_type}): {why}")
    return found


def _recurrent(node: onnx.NodeProto) -> str | None:
    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    for name in given.get("activations", ()):
        needed = _NO_DEFAULTS.get(name.decode().lower())
        wanted = needed or ("activation_alpha", "activation_beta")
        if needed is not None and not all(given.get(attribute) for attribute in wanted):
            return f"it takes the defaults of {name.decode()} for zeros"
    return None


_CHECKS: dict[str, Callable[[onnx.NodeProto], str | None]] = {
    "LSTM": _recurrent,
    "GRU": _recurrent,
    "RNN": _recurrent,
}
