"""The npm package's `loadGpu` in headless Chromium, on its software adapter: checks of indices come
after a run, and runs of other dims overlap.
"""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from compiler import compile_model
from tests.clients.page_programs import ran

ROWS = 5
PROGRAM = Path(__file__).with_name("gpu_page.js")
INDICES = ([0, 1, 4, -1, -5], [], [3], [0, ROWS], [2] * 300, [-ROWS - 1], [4, 3])
WRONG = f"run.failed: Gather 'y': an index is out of range for an axis of {ROWS}"

pytestmark = pytest.mark.slow


def table() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((ROWS, 3)).astype("float32")


def lookup() -> onnx.ModelProto:
    """y[n, 3]: the rows of a table that i[n] names."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Gather", ["rows", "i"], ["y"])],
        "g",
        [value("i", onnx.TensorProto.INT64, ["n"])],
        [value("y", onnx.TensorProto.FLOAT, ["n", 3])],
        [numpy_helper.from_array(table(), "rows")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.long
def test_what_a_run_finds_wrong_comes_with_its_end(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    options = {"verify": False, "profile": False}
    compile_model(lookup(), output=bundle, target="webgpu", dims={"n": "0:300"}, options=options)
    result = ran(PROGRAM, bundle, tmp_path / "page", seconds=60, indices=INDICES)
    assert result["emulated"]
    for results in (result["alone"], result["together"]):
        for arguments, got in zip(INDICES, results, strict=True):
            if max(map(abs, arguments), default=0) > ROWS or ROWS in arguments:
                assert got == WRONG
            else:
                np.testing.assert_array_equal(
                    np.float32(got), table()[np.array(arguments, int)].ravel()
                )
