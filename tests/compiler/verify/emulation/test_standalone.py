"""Libraries that need no runtime are run under an emulator before they are published."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

from compiler import compile_model, targets
from compiler.targets import Target
from compiler.verify.emulation import emulator
from relaxd.contract.options import Flavour
from tests.compiler.codegen.standalone import models
from tests.support.emulated import with_c_library

pytestmark = pytest.mark.slow

_DIMS: dict[Any, dict[str, Any]] = {
    models.perceptron: {"n": (0, 70)},
    models.nonzero: {"a": (0, 9), "b": (1, 9)},
    models.choosing: {"n": "3:30%3"},
    models.counting: {"n": (1, 9)},
}
_CASES = [
    pytest.param("armv7", models.counting, marks=with_c_library),
    pytest.param("riscv64", models.nonzero, marks=with_c_library),
    pytest.param("riscv64-v", models.perceptron, marks=with_c_library),
    ("aarch64", models.choosing),
    ("android-arm64", models.perceptron),
    ("macos-arm64", models.nonzero),
    ("ios-arm64", models.counting),
    ("windows-x86-64", models.perceptron),
]
"""Every form of a driver, and every processor that is emulated."""


def _emulated(name: str) -> Target:
    target = targets.resolve(name)
    if why := emulator.explain_missing(target, Flavour.STANDALONE):
        pytest.skip(why)
    return target


@pytest.mark.parametrize(("name", "graph"), _CASES)
def test_builds_agree_with_the_reference(
    name: str, graph: Callable[[], onnx.ModelProto], tmp_path: Path
) -> None:
    options = {"flavour": "standalone", "profile": False}
    manifest = compile_model(
        graph(),
        output=tmp_path / "out",
        target=_emulated(name).name,
        dims=_DIMS[graph],
        options=options,
    )
    numerics = json.loads((tmp_path / "out" / "numerics.json").read_text())
    assert (numerics["verdict"], numerics["status"]) == ("passed", "emulated")
    assert manifest.target["status"] == "emulated"
    assert len(numerics["points"]) >= 4
    assert not [name for name in manifest.files if "tvm" in name]
