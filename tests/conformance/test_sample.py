"""A seeded sample of the conformance cases, in both modes: no wrong answer, no crash, and the pass
rate of the whole.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

_CASES = 12
_SEED = 8


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    """Workers are forked, so the run is a process of its own, without the libraries that other
    tests have opened.
    """
    file = tmp_path_factory.mktemp("conformance") / "results.json"
    command = [
        sys.executable,
        "-m",
        "tests.conformance",
        "--sample",
        str(_CASES),
        "--seed",
        str(_SEED),
        "--json",
        str(file),
    ]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False
    )
    assert file.exists(), done.stderr
    return {run["mode"]: run for run in json.loads(file.read_text())}


@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_no_answer_is_wrong_and_nothing_dies(runs: dict[str, dict], mode: str) -> None:
    results = runs[mode]["results"]
    assert len(results) == _CASES
    assert [
        result for result in results if result["outcome"] in ("wrong", "crash", "timeout")
    ] == []


@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_what_does_not_pass_is_refused_by_name(runs: dict[str, dict], mode: str) -> None:
    results = runs[mode]["results"]
    passed = [result["name"] for result in results if result["outcome"] == "ok"]
    assert len(passed) >= 0.75 * len(results), [
        result["why"] for result in results if result["outcome"] != "ok"
    ]
    assert [result["why"] for result in results if result["outcome"] == "error"] == []
