"""Values of bfloat16, which numpy and ONNX Runtime's arrays do not know."""

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx

from compiler.bisection.values import Values, typed_inputs
from compiler.ir.onnx.model.nodes import Graph
from compiler.verify.inputs.samples import to_npz

MODEL = onnx.parser.parse_model(
    """<ir_version: 9, opset_import: ["": 19]>
    g (bfloat16[n, 5] x, float[n, 5] z) => (float[n, 5] y)
    {
        wide = Cast<to = 1>(x)
        sum = Add(wide, z)
        narrow = Cast<to = 16>(sum)
        y = Cast<to = 1>(narrow)
    }"""
)


def test_inputs_and_inner_values_of_bfloat16(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for rows in (0, 1, 17):
        x, z = random.standard_normal((2, rows, 5)).astype(np.float32)
        x = x.astype(ml_dtypes.bfloat16)
        values = Values(Graph(MODEL, {}), {"x": x, "z": z}, tmp_path)
        assert values.tensors["narrow"] == "bfloat16"
        arrays = values.of(["x", "narrow", "y"])
        bfloats = (x.astype(np.float32) + z).astype(ml_dtypes.bfloat16)
        assert arrays["narrow"].dtype == bfloats.dtype
        np.testing.assert_array_equal(arrays["x"].astype("f4"), x.astype("f4"))
        np.testing.assert_array_equal(arrays["narrow"].astype("f4"), bfloats.astype("f4"))
        np.testing.assert_array_equal(arrays["y"], bfloats.astype("f4"))


def test_inputs_of_a_reproducer_have_the_dtypes_of_the_model(tmp_path: Path) -> None:
    arrays = {
        "x": np.ones((2, 5), ml_dtypes.bfloat16),
        "z": np.ones((2, 5), np.float32),
    }
    to_npz(tmp_path / "inputs.npz", arrays)
    with np.load(tmp_path / "inputs.npz", allow_pickle=False) as archive:
        inputs = typed_inputs(MODEL, archive)
    assert {name: array.dtype for name, array in inputs.items()} == {
        name: array.dtype for name, array in arrays.items()
    }
    np.testing.assert_array_equal(inputs["x"].astype("f4"), arrays["x"].astype("f4"))
