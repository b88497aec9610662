"""Operators one by one beside the reference kernels of TFLite's interpreter, where it is
installed: integers to the bit.
"""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from compiler.ir.tflite.file import parse_tflite
from compiler.ir.tflite.model import model_of
from tests.support.models.tflite_cases import Case, cases

interpreter = pytest.importorskip("ai_edge_litert.interpreter")


@pytest.mark.parametrize("case", [pytest.param(case, id=case.label) for case in cases()])
def test_an_operator_gives_what_the_reference_kernel_gives(case: Case, tmp_path: Path) -> None:
    data = case.encode()
    path = tmp_path / "m.tflite"
    path.write_bytes(data)
    reference = interpreter.Interpreter(
        str(path),
        experimental_op_resolver_type=interpreter.OpResolverType.BUILTIN_REF,
        num_threads=1,
    )
    options = onnxruntime.SessionOptions()
    # One of the others adds biases wrongly (`compiler.verify.reference.onnx`).
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    model = model_of(parse_tflite(memoryview(data))).SerializeToString()
    session = onnxruntime.InferenceSession(model, options)
    open_axes = any(size < 0 for tensor in case.tensors for size in tensor.shape)
    for samples in (1, 3) if open_axes else (1, 1):
        feeds = case.draw(samples, samples)
        for detail, feed in zip(reference.get_input_details(), feeds, strict=True):
            reference.resize_tensor_input(detail["index"], feed.shape)
        reference.allocate_tensors()
        for detail, feed in zip(reference.get_input_details(), feeds, strict=True):
            reference.set_tensor(detail["index"], feed)
        reference.invoke()
        names = [entry.name for entry in session.get_inputs()]
        results = session.run(None, dict(zip(names, feeds, strict=True)))
        for detail, result in zip(reference.get_output_details(), results, strict=True):
            wanted = reference.get_tensor(detail["index"])
            assert result.dtype == wanted.dtype
            if wanted.dtype == np.float32:
                np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=2e-5)
            else:
                np.testing.assert_array_equal(result, wanted)
