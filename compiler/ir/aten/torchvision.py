"""torchvision's operators for torch, without torchvision: a saved detector names them, and torch
refuses a file with a name it does not know.
"""

from typing import Any

NAMESPACE = "torchvision"
NMS = "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"

_defined: list[Any] = []
"""The library of definitions, which torch forgets together with this reference."""


def define(torch: Any) -> bool:
    """Make `torchvision::nms` known to torch; False if it is, by torchvision itself or before."""
    if hasattr(torch.ops.torchvision, "nms"):
        return False
    library = torch.library.Library(NAMESPACE, "DEF")
    library.define(NMS)
    library.impl("nms", lambda *arguments: _suppress(torch, *arguments), "CPU")
    _defined.append(library)
    return True


def _suppress(torch: Any, boxes: Any, scores: Any, limit: float) -> Any:
    """The boxes kept, best scores first, by torchvision's own definition; the reference of a
    build's verification.
    """
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    left, selected = torch.argsort(scores, descending=True, stable=True), []
    while len(left):
        best, left = left[0], left[1:]
        selected.append(int(best))
        low = torch.maximum(boxes[best, :2], boxes[left, :2])
        high = torch.minimum(boxes[best, 2:], boxes[left, 2:])
        common = (high - low).clamp(min=0).prod(1)
        left = left[~(common / (area[best] + area[left] - common) > limit)]
    return torch.tensor(selected, dtype=torch.int64)
