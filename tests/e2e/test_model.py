"""A real model goes in over HTTP, a library comes out that a bare Python runs at any declared
shape.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.e2e.deployment import Deployment
from tests.support.models.known import MODELS, feed_of, path_of, reference

pytestmark = pytest.mark.slow
scaled = pytest.mark.parametrize(
    "service", [pytest.param("scaled", marks=pytest.mark.scaled)], indirect=True
)
TOLERANCE = 1e-4
DIMS = {"batch": "1:2", "seq": "1:64"}
SHAPES = (
    {"batch": 1, "seq": 7},
    {"batch": 1, "seq": 64},
    {"batch": 2, "seq": 32},
    {"batch": 2, "seq": 47},
)
"""Of MiniLM. The demo compiles it for its whole range, whose far end takes seconds a run."""

RUNNER = """
import importlib.util, pathlib, sys
import numpy, relaxd
names = ("tvm", "torch", "onnx", "onnxruntime", "httpx", "typer", "rich")
absent = [name for name in names if importlib.util.find_spec(name)]
assert not absent, f"the environment is not slim: {absent}"
model = relaxd.load(sys.argv[1])
for feed in pathlib.Path(sys.argv[2]).glob("feed-*.npz"):
    with numpy.load(feed) as arrays:
        outputs = model.run(dict(arrays))
    numpy.savez(feed.with_name(feed.name.replace("feed", "outputs")), **outputs)
"""


def compile_model(service: Deployment, name: str, **others: Any) -> dict[str, Any]:
    answer = service.post(path_of(name), json.dumps(MODELS[name].request(**others)))
    assert answer.status_code == 200, answer.text
    job: dict[str, Any] = answer.json()
    assert job["state"] == "succeeded", job["builds"][0]["error"]
    return job


@pytest.fixture(scope="module")
def minilm(service: Deployment) -> dict[str, Any]:
    return compile_model(service, "minilm", dims=DIMS)


@pytest.fixture(scope="module")
def bundle(
    service: Deployment, minilm: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    with service.client() as client:
        return client.pull(
            minilm["builds"][0]["artifact"]["digest"], tmp_path_factory.mktemp("pulled") / "minilm"
        )


@scaled
@pytest.mark.long
def test_one_bundle_serves_every_declared_shape_in_a_bare_python(
    bundle: Path, slim_python: Path, tmp_path: Path
) -> None:
    for index, dims in enumerate(SHAPES):
        np.savez(
            tmp_path / f"feed-{index}.npz", **dict[str, Any](feed_of("minilm", dims, seed=index))
        )
    done = subprocess.run(
        [slim_python, "-I", "-c", RUNNER, bundle, tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for index, dims in enumerate(SHAPES):
        expected = reference("minilm", feed_of("minilm", dims, seed=index))
        with np.load(tmp_path / f"outputs-{index}.npz") as outputs:
            assert set(outputs) == set(expected)
            for name, value in expected.items():
                np.testing.assert_allclose(
                    outputs[name], value, rtol=0, atol=TOLERANCE, err_msg=f"{name} at {dims}"
                )


@scaled
@pytest.mark.long
def test_a_bundle_says_what_it_is_how_fast_and_how_exact(
    bundle: Path, minilm: dict[str, Any]
) -> None:
    manifest = json.loads((bundle / "manifest.json").read_text())
    assert {dim: manifest["dims"][dim]["max"] for dim in ("batch", "seq")} == {
        "batch": 2,
        "seq": 64,
    }
    build = minilm["builds"][0]
    assert json.loads((bundle / "numerics.json").read_text()) == build["numerics"]
    profile = json.loads((bundle / "profile.json").read_text())
    kernels = json.loads((bundle / "kernels.json").read_text())["kernels"]
    # The job leaves out why families declined a kernel: reasons are long.
    assert all(kernel.pop("declined") is not None for kernel in kernels)
    assert {**profile, "kernels": kernels} == build["profile"]
    assert (bundle / "model.so").stat().st_size > 0
    assert manifest["load"]["runtime"] == {}
    assert not list(bundle.glob("*tvm*"))


@scaled
@pytest.mark.long
def test_the_same_post_again_is_answered_from_the_cache(
    service: Deployment, minilm: dict[str, Any]
) -> None:
    again = compile_model(service, "minilm", dims=DIMS)
    assert again["id"] != minilm["id"]
    assert again["builds"][0]["cached"]
    assert again["builds"][0]["artifact"] == minilm["builds"][0]["artifact"]
    assert "build.stage" not in {event["type"] for event in service.events(again)}


@scaled
@pytest.mark.long
def test_progress_is_told_and_told_again(service: Deployment, minilm: dict[str, Any]) -> None:
    events = service.events(minilm)
    stages = list(
        dict.fromkeys(event["stage"] for event in events if event["type"] == "build.stage")
    )
    assert [
        stage
        for stage in stages
        if stage in ("import", "pass", "codegen", "link", "verify", "profile")
    ] == [
        "import",
        "pass",
        "codegen",
        "link",
        "verify",
        "profile",
    ]
    assert events[-1] == {"type": "job.finished", "state": "succeeded"}
    assert service.events(minilm) == events
