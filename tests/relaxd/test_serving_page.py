"""The FastAPI program of the serving page, as clients meet it."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

ROOT = Path(__file__).parents[2]
PROGRAM = re.compile(r'^```python\n("""serve\.py.*?)^```$', re.MULTILINE | re.DOTALL)


@pytest.fixture
def program(bundles: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    (code,) = PROGRAM.findall((ROOT / "docs/serving.md").read_text())
    monkeypatch.setenv("BUNDLE", str(bundles / "twice"))
    module = ModuleType("serve")
    exec(compile(code, "serve.py", "exec"), module.__dict__)
    return module


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
