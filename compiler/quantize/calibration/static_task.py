"""The choice of grids in a process of its own: ONNX Runtime reads a model that nobody has vouched
for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from compiler.ir.onnx.quantize.row_matmuls import RowProducts
from compiler.isolation.step import Record, serve
from compiler.quantize.calibration.grids import Placed, of_images, of_rows
from compiler.quantize.calibration.sampling import Learn, learned
from compiler.verify.inputs import npz


def place(spec: Record, record: Callable[[Record], None]) -> None:
    """Find the grid of every value that products of floats round, by the samples.

    spec: as in `sampling.learned`. Writes the scales of channels to `scales.npz` in the folder, and
    records `{value, step, zero, strength, error}` for each value.
    """

    def learners(products: RowProducts) -> dict[str, Learn[Placed]]:
        images, matrices = products.images, products.matrices
        return {
            # Rows of images cannot be scaled: the window of a convolution holds several.
            value: of_images if value in images else partial(of_rows, weights=matrices[value])
            for value in products.values
        }

    found = learned(spec, learners, static=True)
    scales = {value: one.scales for value, one in found.items() if one.scales is not None}
    npz.write(Path(spec["folder"]) / "scales.npz", scales)
    for value, one in found.items():
        placed = {"step": one.grid.step, "zero": one.grid.zero}
        record({"value": value, **placed, "strength": one.strength, "error": one.error})


if __name__ == "__main__":
    serve(place)
