"""The choice of scales in a process of its own: ONNX Runtime reads a model that nobody has vouched
for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from compiler.calibration.pieces import Pieces
from compiler.calibration.smoothing import Smoothed, smoothed
from compiler.ir.draws import Draw
from compiler.ir.model_file import LoadedScript, open_model
from compiler.ir.onnx.graph import Graph, fixed_inputs
from compiler.ir.onnx.row_products import RowProducts
from compiler.isolation.step import Record, serve
from compiler.verify import npz
from compiler.verify.reference import feeding
from compiler.verify.reference.onnx import wide


def smooth(spec: Record, record: Callable[[Record], None]) -> None:
    """Find the scales of every value that products of floats round, by what the samples make of it
    in the model that rounds nothing.

    spec: model, consts and draws of the reference, inputs (a file of `verify.npz`), and folder.
    Writes `scales.npz` there, and records `{value, strength, before, after}` for each.
    """
    folder = Path(spec["folder"])
    draws = {name: Draw.from_json(draw) for name, draw in spec["draws"].items()}
    inputs = {name: wide(array) for name, array in npz.read(Path(spec["inputs"])).items()}
    loaded = open_model(Path(spec["model"]))
    assert not isinstance(loaded, LoadedScript)
    matrices = RowProducts(loaded.proto).matrices
    graph = Graph(loaded.proto, fixed_inputs(loaded.proto, spec["consts"]))

    def run(feeds: Mapping[str, Any]) -> dict[str, Smoothed]:
        pieces = Pieces(graph, tuple(matrices), dict(feeds), folder)
        found = {value: smoothed(pieces.following(), one) for value, one in matrices.items()}
        return {value: one for value, one in found.items() if one is not None}

    found: Mapping[str, Smoothed] = feeding.run(run, inputs, draws)
    npz.write(folder / "scales.npz", {value: one.scales for value, one in found.items()})
    for value, one in found.items():
        errors = {"before": one.before, "after": one.after}
        record({"value": value, "strength": one.strength, **errors})


if __name__ == "__main__":
    serve(smooth)
