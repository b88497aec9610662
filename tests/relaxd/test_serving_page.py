"""The programs of the serving page, as clients meet them."""

import importlib.util
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.http
import uvicorn
from fastapi.testclient import TestClient
from google.protobuf import text_format
from tritonclient.utils import InferenceServerException

from tests.support.servers import free_port, until

ROOT = Path(__file__).parents[2]
PAGES = (
    "docs/howto/serving-alias.md",
    "docs/howto/serving-frameworks.md",
    "docs/howto/serving-kserve.md",
)
PAGE = "".join((ROOT / page).read_text() for page in PAGES)


def source(name: str) -> str:
    """The page's program of that name."""
    program = rf'^```python\n("""{name}\.py.*?)^```$'
    (code,) = re.findall(program, PAGE, re.MULTILINE | re.DOTALL)
    return code


def load_page(name: str) -> ModuleType:
    """The page's program of that name as a module."""
    module = ModuleType(name)
    exec(compile(source(name), f"{name}.py", "exec"), module.__dict__)
    return module


@pytest.fixture
def program(bundles: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("BUNDLE", str(bundles / "twice"))
    return load_page("serve")


def test_requests_of_one_moment_are_one_call(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    class Counting:
        inputs = program.model.inputs

        def run(self, inputs: dict[str, np.ndarray]) -> Any:
            calls.append(len(inputs["x"]))
            return model.run(inputs)

    model = program.model
    monkeypatch.setattr(program, "model", Counting())
    monkeypatch.setattr(program, "PATIENCE_S", 0.5)

    def ask(n: int) -> Any:
        answer = client.post("/predict", json={"x": [float(n)] * n})
        return answer.status_code, answer.json()

    with TestClient(program.app) as client, ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(ask, range(1, 9)))
    assert answers == [(200, {"y": [2.0 * n] * n}) for n in range(1, 9)]
    assert sum(calls) == sum(range(1, 9))
    assert len(calls) < 8


def test_a_wrong_request_fails_alone(program: Any) -> None:
    with TestClient(program.app) as client, ThreadPoolExecutor(4) as clients:

        def ask(request: Any) -> Any:
            return client.post("/predict", json=request).status_code

        requests = [{"x": [1.0]}, {"x": [[1.0]]}, {"z": [1]}, {"x": ["a"]}, {"x": [2.0]}]
        assert list(clients.map(ask, requests)) == [200, 422, 422, 422, 200]


@pytest.fixture
def v2(bundles: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Triton's client of the page's V2 program, which serves the bundle `dims`."""
    monkeypatch.setenv("BUNDLE", str(bundles / "dims"))
    port = free_port()
    config = uvicorn.Config(load_page("v2").app, port=port, log_level="warning", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    client = tritonclient.http.InferenceServerClient(f"127.0.0.1:{port}")
    try:
        until(client.is_server_live, OSError)
        yield client
    finally:
        client.close()
        server.should_exit = True
        thread.join()


def test_the_v2_program_says_what_it_serves(v2: Any) -> None:
    assert v2.is_server_ready()
    assert v2.is_model_ready("dims")
    assert not v2.is_model_ready("other")
    assert "binary_tensor_data" in v2.get_server_metadata()["extensions"]
    result = v2.get_model_metadata("dims")
    assert {
        tensor["name"]: (tensor["datatype"], tensor["shape"]) for tensor in result["inputs"]
    } == {
        "x": ("FP32", [-1, -1]),
        "wide": ("FP32", [-1, -1]),
        "scale": ("FP32", []),
    }


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize(("n", "m"), [(1, 2), (7, 6), (8, 64)])
def test_the_v2_program_computes(v2: Any, binary: bool, n: int, m: int) -> None:
    draw = np.random.default_rng(n)
    shapes = {"x": (n, m), "wide": (n, 2 * m), "scale": ()}
    arrays = {name: draw.standard_normal(shape).astype("f4") for name, shape in shapes.items()}
    inputs = []
    for name, array in arrays.items():
        inputs.append(tritonclient.http.InferInput(name, list(array.shape), "FP32"))
        inputs[-1].set_data_from_numpy(np.asarray(array), binary_data=binary)
    outputs = [tritonclient.http.InferRequestedOutput("y", binary_data=binary)]
    result = v2.infer("dims", inputs, outputs=outputs).as_numpy("y")
    want = (arrays["x"] + arrays["wide"][:, ::2]) * arrays["scale"]
    np.testing.assert_allclose(result, want, rtol=1e-6)


def test_the_v2_program_refuses_with_the_reason(v2: Any) -> None:
    wrong = tritonclient.http.InferInput("x", [9, 2], "FP32")
    wrong.set_data_from_numpy(np.zeros((9, 2), "f4"))
    with pytest.raises(InferenceServerException, match="InputError: ") as caught:
        v2.infer("dims", [wrong])
    assert caught.value.status() == "400"
    with pytest.raises(InferenceServerException, match="the model here is dims"):
        v2.infer("other", [wrong])


@pytest.fixture
def lit(bundles: Path, tmp_path: Path) -> Iterator[httpx.Client]:
    """A client of the page's program for LitServe, which serves the bundle `twice`."""
    pytest.importorskip("litserve")
    (tmp_path / "lit.py").write_text(source("lit"))
    port = free_port()
    variables = {"BUNDLE": str(bundles / "twice"), "PORT": str(port), "PYTHONPATH": str(ROOT)}
    log = (tmp_path / "log.txt").open("wb")
    process = subprocess.Popen(
        [sys.executable, "lit.py"],
        cwd=tmp_path,
        env={**os.environ, **variables},
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    try:
        with log, httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            until(lambda: client.get("/health").raise_for_status(), httpx.HTTPError)
            yield client
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_the_program_for_litserve_computes_and_refuses(lit: httpx.Client) -> None:
    good = lit.post("/predict", json={"x": [1.0, 2.5]})
    assert (good.status_code, good.json()) == (200, {"y": [2.0, 5.0]})
    for request in ({"x": [[1.0]]}, {"z": [1.0]}, {"x": ["a"]}):
        assert lit.post("/predict", json=request).status_code == 422


class Tensor:
    """A model of Triton's own kind."""

    def __init__(self, name: str, array: np.ndarray) -> None:
        self.name, self.array = name, array

    def as_numpy(self) -> np.ndarray:
        return self.array


def test_the_program_for_triton(
    bundles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = SimpleNamespace(
        Tensor=Tensor,
        TritonError=str,
        InferenceResponse=lambda outputs=(), error=None: SimpleNamespace(
            outputs={tensor.name: tensor.array for tensor in outputs}, error=error
        ),
        get_input_tensor_by_name=lambda request, name: Tensor(name, request[name]),
    )
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", backend)
    (tmp_path / "1").mkdir()
    (tmp_path / "1/bundle").symlink_to(bundles / "twice")
    served = load_page("model").TritonPythonModel()
    served.initialize({"model_repository": str(tmp_path), "model_version": "1"})
    good, bad = np.arange(5, dtype="f4"), np.zeros((2, 2), "f4")
    first, second = served.execute([{"x": good}, {"x": bad}])
    np.testing.assert_array_equal(first.outputs["y"], good * 2)
    assert first.error is None
    assert "'x'" in second.error


def test_the_configuration_for_triton_fits_its_schema() -> None:
    folder = Path(tritonclient.http.__file__).parents[1] / "grpc"
    spec = importlib.util.spec_from_file_location("schema", folder / "model_config_pb2.py")
    assert spec
    assert spec.loader
    schema = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(schema)
    (text,) = re.findall(r"^```protobuf\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    config = text_format.Parse(text, schema.ModelConfig())
    assert [*config.input[0].dims] == [-1, 4]
    assert config.backend == "python"
