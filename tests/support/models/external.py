"""ONNX models whose weights are in other files, as folders and tars."""

import io
import tarfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def outside(name: str, location: str | None) -> TensorProto:
    """A tensor whose numbers are in that file."""
    tensor = numpy_helper.from_array(np.ones((2, 3), np.float32), name)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    if location is not None:
        tensor.external_data.add(key="location", value=location)
    return tensor


def model_naming(*locations: str | None) -> onnx.ModelProto:
    weights = [outside(f"w{i}", location) for i, location in enumerate(locations)]
    value = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])
    nodes = [helper.make_node("Identity", ["w0"], ["y"], name="location")]
    return helper.make_model(helper.make_graph(nodes, "g", [], [value], weights))


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def pack(
    path: Path, files: dict[str, bytes], prefix: str = "", form: int = tarfile.PAX_FORMAT
) -> Path:
    with tarfile.open(path, "w", format=form) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(prefix + name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path
