"""The range of onnx's evaluator: operators of ours in place of those of its own that leave
something out, and forms that it is not asked about.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference.op_run import OpRun

from compiler.ir.onnx.model.walking import walk
from compiler.verify.reference.pooling import (
    AveragePool,
    GlobalLpPool,
    GlobalMaxPool,
    LpPool,
    MaxPool,
)
from compiler.verify.reference.recurrent import GRU, LSTM, RNN, DynamicQuantizeLSTM

Array = np.ndarray[Any, Any]


class LRN(OpRun):  # type: ignore[misc]
    """x / (bias + alpha / size * sum of squares of neighbouring channels) ** beta; onnx's own goes
    over as many channels as there are samples.
    """

    op_domain = ""

    def _run(self, x: Array, **attributes: Any) -> tuple[Array]:
        size, channels = attributes["size"], x.shape[1]
        squares, total = x.astype(np.float64) ** 2, np.zeros(x.shape)
        for channel in range(channels):
            first = max(channel - (size - 1) // 2, 0)
            total[:, channel] = squares[:, first : channel + size // 2 + 1].sum(axis=1)
        scale = attributes["bias"] + attributes["alpha"] / size * total
        return ((x / scale ** attributes["beta"]).astype(x.dtype),)


class LpNormalization(OpRun):  # type: ignore[misc]
    """x by its p-norm along an axis, zero where that is zero; onnx's own adds signed numbers up for
    p = 1.
    """

    op_domain = ""

    def _run(self, x: Array, **attributes: Any) -> tuple[Array]:
        wide, p = x.astype(np.float64), attributes["p"]
        norm = (np.abs(wide) ** p).sum(axis=attributes["axis"], keepdims=True) ** (1 / p)
        return ((wide / np.where(norm == 0, 1, norm)).astype(x.dtype),)


OPERATORS: tuple[type[OpRun], ...] = (
    *(LSTM, GRU, RNN, DynamicQuantizeLSTM),
    *(MaxPool, AveragePool, LpPool, GlobalMaxPool, GlobalLpPool),
    *(LRN, LpNormalization),
)


def objections(model: onnx.ModelProto) -> list[str]:
    """Why onnx's evaluator does not judge the model, by node; empty where it does."""
    nodes = walk((*model.graph.node, *(n for f in model.functions for n in f.node)))
    return [
        f"{node.name or node.output[0]} ({node.op_type}): {why}"
        for node in nodes
        if node.op_type in _GAPS and node.domain in ("", "ai.onnx")
        for why in _GAPS[node.op_type](
            {a.name: helper.get_attribute_value(a) for a in node.attribute}
        )
    ]


def _grid_sample(attributes: Mapping[str, Any]) -> list[str]:
    cubic = attributes.get("mode", b"") in (b"bicubic", b"cubic")
    wrong = cubic and attributes.get("padding_mode", b"") == b"border"
    return ["it clamps cubic samples at the border before, not after it weighs them"] * wrong


_GAPS: Mapping[str, Callable[[Mapping[str, Any]], list[str]]] = {"GridSample": _grid_sample}
