"""Constants that a library's code holds, beside ONNX Runtime."""

import numpy as np
import pytest

from tests.compiler.codegen.standalone import models
from tests.compiler.codegen.standalone.test_standalone import compare


@pytest.mark.parametrize("sign", [-1, 1])
def test_constants_of_a_branch(tmp_path, sign):
    models.build_bundle(models.weighing(), tmp_path, "weighing", {"n": (1, 8)})
    assert not (tmp_path / "weighing" / "weights.bin").exists()
    x = np.abs(np.random.default_rng(2).standard_normal((3, 4))).astype("float32")
    compare(tmp_path, "weighing", {"x": sign * x})
