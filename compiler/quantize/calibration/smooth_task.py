"""The choice of scales in a process of its own: ONNX Runtime reads a model that nobody has vouched
for.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from compiler.isolation.step import Record, serve
from compiler.quantize.calibration.sampling import Learn, learn_values
from compiler.quantize.calibration.smoothing import SmoothScales, find_scales
from compiler.quantize.onnx.row_matmuls import RowMatmuls
from compiler.verify.inputs import array_file


def smooth(spec: Record, record: Callable[[Record], None]) -> None:
    """Find the scales of every value that matmuls round, by the samples.

    spec: as in `sampling.learn_values`. Writes `scales.arrays` to the folder, and records `{value,
    strength, before, after}` for each.
    """

    def learners(matmuls: RowMatmuls) -> dict[str, Learn[SmoothScales]]:
        return {
            value: partial(find_scales, weights=weights)
            for value, weights in matmuls.matrices.items()
        }

    results = learn_values(spec, learners, static=False)
    array_file.write(
        Path(spec["folder"]) / "scales.arrays",
        {value: one.scales for value, one in results.items()},
    )
    for value, one in results.items():
        errors = {"before": one.before, "after": one.after}
        record({"value": value, "strength": one.strength, **errors})


if __name__ == "__main__":
    serve(smooth)
