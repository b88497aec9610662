"""Rows of features, class labels and transforms, which all operators of ai.onnx.ml share."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import numpy_helper

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.onnx.node import Node
from compiler.ir.ops.ml.scores import PostTransform
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import layout

DOMAIN = "ai.onnx.ml"


@dataclass(frozen=True)
class Labels:
    """The numbers that an operator gives for its classes; `text`: they stand for strings."""

    numbers: Sequence[int]
    text: bool

    def __len__(self) -> int:
        return len(self.numbers)

    def output(self, node: Node, chosen: Value) -> Value | None:
        """The output of labels; fails if they are strings and the model uses them."""
        if not self.text:
            return chosen
        if node.is_used(0):
            node.fail(
                "the class labels are strings, and a compiled model's values are tensors of "
                "numbers",
                reason="dtype",
                hint="train on labels that are integers; or keep the scores alone, whose columns "
                "are in the order of the labels, with skl2onnx.helpers.onnx_helper."
                "select_model_inputs_outputs(model, outputs=[...])",
            )
        return None


def labels_of(node: Node, integers: str, strings: str) -> Labels:
    """The classes of a classifier, by the names of its two attributes."""
    text = node.attr(strings, [])
    numbers = list(range(len(text))) if text else list(node.attr(integers, []))
    return Labels(numbers, bool(text))


def post_transform(node: Node) -> PostTransform:
    """The transform of the scores."""
    name = node.attr("post_transform", "NONE")
    if name not in PostTransform.__members__:
        node.fail(f"post_transform is {name!r}, which ONNX does not define", reason="attribute")
    return PostTransform(name)


def rows(b: Builder, node: Node, dtype: str | None = None) -> Value:
    """Input 0 as rows [n, features] of floats: a vector is one row; of float64 only where `dtype`
    does not say what else.
    """
    x = node.value(0)
    if len(x.shape) not in (1, 2):
        node.fail(f"the input has {len(x.shape)} axes, one or two are needed", reason="shape")
    wide = dtype or ("float64" if x.dtype == "float64" else "float32")
    return ew.cast(b, layout.unsqueeze(b, x, [0]) if len(x.shape) == 1 else x, wide)


def floats(node: Node, name: str) -> np.ndarray[Any, Any]:
    """A list of floats from the attribute of that name or the tensor `<name>_as_tensor`, empty
    without either.
    """
    tensor = node.attr(f"{name}_as_tensor", None)
    if tensor is not None:
        return np.asarray(numpy_helper.to_array(tensor)).reshape(-1)
    return np.asarray(node.attr(name, []), np.float32)


def integers(node: Node, name: str) -> np.ndarray[Any, Any]:
    """A list of integers, empty without the attribute."""
    return np.asarray(node.attr(name, []), np.int64)
