"""torchvision's operators of detectors."""

import numpy as np

from compiler.ir.aten.node import Node
from compiler.ir.aten.registry import op
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.nn import suppression
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex


@op("torchvision::nms")
def nms(b: Builder, node: Node) -> Value:
    """int64 [kept]: the boxes [n, 4] kept by greedy suppression, best scores [n] first."""
    boxes = ew.cast(b, node.value("dets"), "float32")
    scores = ew.cast(b, node.value("scores"), "float32")
    if len(boxes.shape) != 2 or len(scores.shape) != 1:
        node.fail("boxes have two axes and scores one", reason="shape")
    b.require(ex.equal(boxes.shape[1], 4), "torchvision::nms: a box has four numbers")
    overlap = Known(np.full(1, node.float("iou_threshold"), np.float32), "float32")
    selected = suppression.suppress(
        b,
        layout.unsqueeze(b, boxes, [0]),
        layout.unsqueeze(b, scores, [0, 1]),
        Known.of([boxes.shape[0]]),
        overlap,
        None,
        False,
    )
    return layout.select(b, selected, 1, 2)
