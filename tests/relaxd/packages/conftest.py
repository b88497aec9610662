"""The bundles of both models."""

from pathlib import Path

import onnx
import pytest

from compiler import compile_model
from tests.relaxd.packages.models import mlp, odd

OPTIONS = {"profile": False, "verify": False}


@pytest.fixture(scope="session")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the bundles `mlp` and `odd`."""
    folder = tmp_path_factory.mktemp("packages")
    onnx.save(mlp(), folder / "mlp.onnx")
    onnx.save(odd(), folder / "odd.onnx")
    compile_model(folder / "mlp.onnx", output=folder / "mlp", dims={"n": "1:8"}, options=OPTIONS)
    compile_model(
        folder / "odd.onnx",
        output=folder / "odd",
        inputs={"a.b": "int64[2*N]"},
        dims={"n": "1:8", "seq-len": "0:64%4"},
        options=OPTIONS,
    )
    return folder
