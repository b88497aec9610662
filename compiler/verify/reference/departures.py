"""Where ONNX Runtime 1.31 is known to depart from the operators' specification, so that it is no
reference.
"""

from collections.abc import Callable

import onnx
from onnx import helper

from compiler.ir.onnx.model.walking import walk

_NO_DEFAULTS = {"thresholdedrelu": ("activation_alpha",), "affine": (), "scaledtanh": ()}
"""Activations whose numbers ONNX Runtime takes for zeros where they are not attributes."""


def of_onnxruntime(model: onnx.ModelProto) -> list[str]:
    """By node that ONNX Runtime computes otherwise, why; empty for nearly every model."""
    nodes = walk((*model.graph.node, *(n for f in model.functions for n in f.node)))
    result = []
    for node in nodes:
        check = _CHECKS.get(node.op_type)
        if check is not None and node.domain in ("", "ai.onnx") and (why := check(node)):
            result.append(f"{node.name or node.output[0]} ({node.op_type}): {why}")
    return result


def _recurrent(node: onnx.NodeProto) -> str | None:
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    for name in attributes.get("activations", ()):
        needed = _NO_DEFAULTS.get(name.decode().lower())
        wanted = needed or ("activation_alpha", "activation_beta")
        if needed is not None and not all(attributes.get(key) for key in wanted):
            return f"it takes the defaults of {name.decode()} for zeros"
    return None


def _pooling(node: onnx.NodeProto) -> str | None:
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    mode = attributes.get("auto_pad", b"NOTSET").decode()
    if mode.startswith("SAME") and any(step != 1 for step in attributes.get("dilations", ())):
        return f"{mode} leaves dilations out"
    return None


def _max_unpool(node: onnx.NodeProto) -> str | None:
    shaped = len(node.input) > 2 and node.input[2]
    return "indices count in the declared shape, not in the pooled one" if shaped else None


_CHECKS: dict[str, Callable[[onnx.NodeProto], str | None]] = {
    "LSTM": _recurrent,
    "GRU": _recurrent,
    "RNN": _recurrent,
    "MaxPool": _pooling,
    "AveragePool": _pooling,
    "LpPool": _pooling,
    "MaxUnpool": _max_unpool,
}
