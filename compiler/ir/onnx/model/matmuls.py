"""The matmuls and convolutions of an ONNX model, by the names of their nodes."""

from collections import Counter

import onnx

from compiler.ir.files.node_labels import label_of
from compiler.ir.onnx.model.walking import walk

OPERATORS = ("MatMul", "Gemm", "Conv")
LEVEL = "accuracy_level"
INT8_LEVEL = 4
"""The accuracy_level from which on ONNX Runtime rounds the left side to 8 bits."""


def matmul_labels(model: onnx.ModelProto) -> frozenset[str]:
    """The labels of the main graph's matmuls that no other node has."""
    inner = (node for function in model.functions for node in function.node)
    counts = Counter(map(label_of, walk((*model.graph.node, *inner))))
    return frozenset(
        label_of(node)
        for node in model.graph.node
        if node.op_type in OPERATORS
        and node.domain in ("", "ai.onnx")
        and counts[label_of(node)] == 1
    )
