"""The calibration in a process of its own: ONNX Runtime reads a model that nobody has vouched
for.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from compiler.ir.files.model_file import LoadedScript, open_model
from compiler.ir.graph.draws import Draw
from compiler.ir.onnx.model.nodes import Graph, fixed_inputs
from compiler.ir.ops.quantized.quantize_weights import BITS, apply_quantization, quantize_matrix
from compiler.ir.weights import WeightQuantization
from compiler.isolation.step import Record, serve
from compiler.quantize.calibration.gptq import calibrate_table, moments_of
from compiler.quantize.calibration.pieces import Pieces
from compiler.quantize.calibration.sites import sites_of, with_initializers
from compiler.verify.inputs import array_file
from compiler.verify.reference import feeding
from compiler.verify.reference.onnx import wide
from relaxd.contract.options import WeightForm

UNSEEN = "the samples multiply nothing but zeros by it"
UNTYPED = "what it multiplies is not float32"
Array = np.ndarray[Any, Any]


def calibrate(spec: Record, record: Callable[[Record], None]) -> None:
    """Round every weight that can be calibrated, in the order of the model's nodes, each by what
    the samples make of the model with all weights before it rounded.

    spec: model, consts and draws of the reference, inputs (a file of `array_file`), folder for the
    quantized weights, and roundings, of [digest, form, axis]. Records `{weight, values}` with the
    file of the quantized weight, or `{weight, nearest}` with the reason.
    """
    roundings = {
        bytes.fromhex(key): WeightQuantization(WeightForm(form), axis)
        for key, form, axis in spec["roundings"]
    }
    folder = Path(spec["folder"])
    draws = {name: Draw.from_json(draw) for name, draw in spec["draws"].items()}
    inputs = {name: wide(array) for name, array in array_file.read(Path(spec["inputs"])).items()}

    def run(feeds: Mapping[str, Any]) -> dict[str, Record]:
        loaded = open_model(Path(spec["model"]))
        assert not isinstance(loaded, LoadedScript)
        model = with_initializers(loaded.proto)
        graph = Graph(model, fixed_inputs(model, spec["consts"]))
        return dict(_calibrated(graph, roundings, dict(feeds), folder))

    for key, outcome in feeding.run(run, inputs, draws).items():
        record({"weight": key, **outcome})


def _calibrated(
    graph: Graph,
    roundings: Mapping[bytes, WeightQuantization],
    feeds: dict[str, Array],
    folder: Path,
) -> Iterator[tuple[str, Record]]:
    """By weight, what became of it; the graph's constants are rounded in place."""
    sites = sites_of(graph, roundings)
    tensors: dict[bytes, list[onnx.TensorProto]] = {}
    for name, key in sites.names.items():
        tensors.setdefault(key, []).append(graph.constants[name])
    for key, why in sites.nearest.items():
        for tensor in tensors.get(key, []):
            _put(tensor, apply_quantization(numpy_helper.to_array(tensor), roundings[key]))
        yield key.hex(), {"nearest": why}
    pieces = Pieces(graph, tuple(sites.taps), feeds, folder)
    for keys in sites.taps.values():
        rows = pieces.read_next()
        moments = moments_of(rows) if rows.dtype == np.float32 else None
        for key in keys:
            array, quantization = numpy_helper.to_array(tensors[key][0]), roundings[key]
            if moments is None or not moments.any():
                weight = quantize_matrix(array, quantization.form, quantization.axis)
                outcome = {"nearest": UNTYPED if moments is None else UNSEEN}
            else:
                weight = _quantize(array, quantization, moments)
                path = folder / f"{key.hex()}.npy"
                np.save(path, weight)
                outcome = {"values": str(path)}
            for tensor in tensors[key]:
                _put(tensor, weight)
            yield key.hex(), outcome


def _quantize(array: Array, quantization: WeightQuantization, moments: Array) -> Array:
    table = array if quantization.axis == 1 else array.T
    calibrated = calibrate_table(np.ascontiguousarray(table), moments, BITS[quantization.form])
    return np.ascontiguousarray(calibrated if quantization.axis == 1 else calibrated.T)


def _put(tensor: onnx.TensorProto, array: Array) -> None:
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


if __name__ == "__main__":
    serve(calibrate)
