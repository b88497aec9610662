"""The choice of scales in a process of its own: ONNX Runtime reads a model that nobody has vouched
for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from compiler.ir.onnx.quantize.row_matmuls import RowProducts
from compiler.isolation.step import Record, serve
from compiler.quantize.calibration.sampling import Learn, learned
from compiler.quantize.calibration.smoothing import Smoothed, smoothed
from compiler.verify.inputs import npz


def smooth(spec: Record, record: Callable[[Record], None]) -> None:
    """Find the scales of every value that matmuls round, by the samples.

    spec: as in `sampling.learned`. Writes `scales.npz` to the folder, and records `{value,
    strength, before, after}` for each.
    """

    def learners(products: RowProducts) -> dict[str, Learn[Smoothed]]:
        return {
            value: partial(smoothed, weights=weights)
            for value, weights in products.matrices.items()
        }

    found = learned(spec, learners, static=False)
    npz.write(
        Path(spec["folder"]) / "scales.npz", {value: one.scales for value, one in found.items()}
    )
    for value, one in found.items():
        errors = {"before": one.before, "after": one.after}
        record({"value": value, "strength": one.strength, **errors})


if __name__ == "__main__":
    serve(smooth)
