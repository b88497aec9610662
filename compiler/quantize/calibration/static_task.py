"""The choice of grids in a process of its own: ONNX Runtime reads a model that nobody has vouched
for.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from compiler.isolation.step import Record, serve
from compiler.quantize.calibration.grids import StaticGrid, of_images, of_rows
from compiler.quantize.calibration.sampling import Learn, learn_values
from compiler.quantize.onnx.row_matmuls import RowMatmuls
from compiler.verify.inputs import array_file


def find_grids(spec: Record, record: Callable[[Record], None]) -> None:
    """Find the grid of every value that products of floats round, by the samples.

    spec: as in `sampling.learn_values`. Writes the scales of channels to `scales.arrays` in the
    folder, and records `{value, step, zero, strength, error}` for each value.
    """

    def learners(matmuls: RowMatmuls) -> dict[str, Learn[StaticGrid]]:
        images, matrices = matmuls.images, matmuls.matrices
        return {
            # Rows of images cannot be scaled: the window of a convolution holds several.
            value: of_images if value in images else partial(of_rows, weights=matrices[value])
            for value in matmuls.values
        }

    results = learn_values(spec, learners, static=True)
    scales = {value: one.scales for value, one in results.items() if one.scales is not None}
    array_file.write(Path(spec["folder"]) / "scales.arrays", scales)
    for value, one in results.items():
        grid = {"step": one.grid.step, "zero": one.grid.zero}
        record({"value": value, **grid, "strength": one.strength, "error": one.error})


if __name__ == "__main__":
    serve(find_grids)
