"""The bundles of both models."""

from pathlib import Path

import onnx
import pytest

from compiler import compile_model
from tests.relaxd.packages.models import mlp, odd

OPTIONS = {"profile": False, "verify": False}


def compile_both(folder: Path, target: str) -> Path:
    """The bundles `mlp` and `odd` in the folder."""
    onnx.save(mlp(), folder / "mlp.onnx")
    onnx.save(odd(), folder / "odd.onnx")
    for name, inputs, dims in (
        ("mlp", {}, {"n": "1:8"}),
        ("odd", {"a.b": "int64[2*N]"}, {"n": "1:8", "seq-len": "0:64%4"}),
    ):
        compile_model(
            folder / f"{name}.onnx",
            output=folder / name,
            target=target,
            inputs=inputs,
            dims=dims,
            options=OPTIONS,
        )
    return folder


@pytest.fixture(scope="session")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundles of both models for this machine."""
    return compile_both(tmp_path_factory.mktemp("packages"), "native")


@pytest.fixture(scope="session")
def web(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundles of both models for WebAssembly."""
    return compile_both(tmp_path_factory.mktemp("web"), "wasm32-simd")
