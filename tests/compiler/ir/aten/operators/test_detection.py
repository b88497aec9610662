"""Non-maximum suppression of scripted detectors, and models that name what torch does not have."""

import io
import zipfile

import numpy as np
import pytest
import torch

from compiler.errors import LoadError
from compiler.ir.aten import torchvision
from compiler.ir.torchscript import loading
from tests.compiler.ir.torchscript.running import Compiled, save_module, script

torchvision.define(torch)


class Detector(torch.nn.Module):
    """Boxes of several classes, kept by class, as torchvision's batched_nms does."""

    def forward(self, boxes: torch.Tensor, scores: torch.Tensor, classes: torch.Tensor):
        offsets = classes.to(boxes) * (boxes.max() + 1)
        selected = torch.ops.torchvision.nms(boxes + offsets[:, None], scores, 0.4)
        return selected, boxes[selected], scores[selected]


def detections(count: int) -> dict[str, np.ndarray]:
    """Boxes of which many overlap, some without area, and scores of which some are equal."""
    draw = np.random.default_rng(count)
    low, size = draw.integers(0, 6, (count, 2)), draw.integers(0, 5, (count, 2))
    return {
        "boxes": np.concatenate([low, low + size], 1).astype(np.float32),
        "scores": draw.integers(0, 5, count).astype(np.float32) / 4,
        "classes": draw.integers(0, 2, count),
    }


def kept_by_hand(boxes: np.ndarray, scores: np.ndarray, limit: float) -> list[int]:
    selected: list[int] = []
    for i in np.argsort(-scores, kind="stable"):
        clear = True
        for j in selected:
            low, high = (
                np.maximum(boxes[i, :2], boxes[j, :2]),
                np.minimum(boxes[i, 2:], boxes[j, 2:]),
            )
            common = np.prod(np.maximum(high - low, 0), dtype="f8")
            areas = [np.prod(boxes[k, 2:] - boxes[k, :2], dtype="f8") for k in (i, j)]
            clear &= not common > limit * (sum(areas) - common)
        selected += [int(i)] if clear else []
    return selected


def test_boxes_kept() -> None:
    module = script(Detector())
    inputs = {"boxes": "float32[n,4]", "scores": "float32[n]", "classes": "int64[n]"}
    compiled = Compiled(module, inputs)
    for count in (1, 2, 7, 40):
        feeds = detections(count)
        offset = feeds["classes"][:, None] * (feeds["boxes"].max() + 1)
        wanted = kept_by_hand(feeds["boxes"] + offset, feeds["scores"], 0.4)
        results = compiled(**feeds)
        assert results["output_0"].tolist() == wanted
        np.testing.assert_array_equal(results["output_1"], feeds["boxes"][wanted])
        torches = module(**{name: torch.from_numpy(array) for name, array in feeds.items()})
        assert torches[0].tolist() == wanted


def test_an_operator_that_torch_does_not_have() -> None:
    """The hint names the operator instead of asking for what was done already."""
    source, target = io.BytesIO(save_module(script(Detector()))), io.BytesIO()
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for item in old.infolist():
            data = old.read(item).replace(b"torchvision.nms", b"torchvision.nmx")
            new.writestr(item, data)
    with pytest.raises(LoadError, match="nmx") as caught:
        loading.load(target.getvalue())
    assert "torchvision::nmx" in str(caught.value.failure.hint)
