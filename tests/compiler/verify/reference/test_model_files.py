"""Models in files: constants inside or beside."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.verify.reference.model_files import write_model


def a_model() -> onnx.ModelProto:
    random = np.random.default_rng(0)
    tensors = [
        numpy_helper.from_array(random.random((300, 4), np.float32), "table"),
        numpy_helper.from_array(random.random((4, 300), np.float32), "other"),
        numpy_helper.from_array(np.array([1]), "one"),
        helper.make_tensor("listed", TensorProto.FLOAT, [2], [1.0, 2.0]),
    ]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["table", "other"], ["y"], name="m")],
        "g",
        [],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [300, 300])],
        tensors,
        doc_string="what it is",
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    helper.set_model_props(model, {"author": "nobody"})
    return model


@pytest.mark.parametrize(("inline", "beside"), [(1 << 20, 0), (0, 2 * 4800)])
def test_the_file_is_the_model_which_stays(tmp_path: Path, inline: int, beside: int) -> None:
    model, same = a_model(), a_model()
    write_model(model, tmp_path / "m.onnx", inline)
    assert model == same
    data = tmp_path / "m.data"
    assert (data.stat().st_size if data.exists() else 0) == beside
    read = onnx.load(tmp_path / "m.onnx")
    for tensor in read.graph.initializer:
        # Reading leaves a mark of where the numbers were.
        tensor.ClearField("data_location")
        del tensor.external_data[:]
    for tensor in same.graph.initializer:
        tensor.ClearField("data_location")
    assert read == same
