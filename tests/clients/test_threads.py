"""Threads of a WebAssembly module, by the npm package in each engine: the same numbers whatever
their count, and ONNX Runtime's.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from compiler import compile_model
from tests.clients.test_js import HERE, HOSTS, PACKAGE, run_script
from tests.support.models.small import encoder, reference

pytestmark = pytest.mark.slow

SHAPES = ((1, 1), (1, 7), (2, 13), (3, 64), (8, 33))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("threads") / "out"
    compile_model(
        encoder(),
        output=folder,
        target="wasm32-threads",
        dims={"batch": "1:8", "seq": "1:64"},
        options={"profile": False, "verify": False},
    )
    return folder


@pytest.mark.parametrize("host", HOSTS)
def test_answers_are_the_same_whatever_the_count(bundle: Path, tmp_path: Path, host: str) -> None:
    draw, points, wanted = np.random.default_rng(0), [], []
    for batch, seq in SHAPES:
        ids = draw.integers(0, 50, (batch, seq))
        wanted.append(reference(encoder(), {"ids": ids})[0].ravel())
        points.append({"dims": {"batch": batch, "seq": seq}, "ids": ids.ravel().tolist()})
    (bundle / "points.json").write_text(json.dumps(points))
    program = [str(HERE / "threads.mjs"), str(PACKAGE / "src"), str(bundle)]
    result = json.loads(run_script(tmp_path, bundle, *HOSTS[host], *program))
    assert set(result) == {"1", "2", "3"}
    assert result["1"] == result["2"] == result["3"]
    for got, want in zip(result["1"], wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_a_module_imports_its_memory_alone(bundle: Path) -> None:
    content = (bundle / "model.wasm").read_bytes()
    # The import section: one import, env.memory, shared.
    index = content.index(b"\x03env\x06memory\x02")
    assert content[index - 1] == 1
    assert content[index + 12] == 3
    assert not [name for name in (b"TVM", b"tvm", b"wasi") if name in content]
