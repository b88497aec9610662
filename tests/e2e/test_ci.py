"""A repository's pull requests and merges, as GitHub's and GitLab's runners check them with the
files in `ci/`: a real service compiles, and `relaxd diff` runs both builds.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
import yaml
from onnx import numpy_helper

from relaxd.client.baselines import tag_of
from tests.e2e.deployment import ROOT, Deployment
from tests.support.models.small import perceptron

pytestmark = [
    pytest.mark.slow,
    # What it shows is the same in either form of the service.
    pytest.mark.parametrize("service", ["embedded"], indirect=True),
]

PROJECT = """
fail_if = ["cosine<0.99999", "size>10%"]

[[model]]
name = "net"
path = "models/net.onnx"
dims = { batch = "1:4", seq = "1:8" }
options = { profile = false }
"""


@dataclass(frozen=True)
class Ended:
    code: int
    summary: str
    folder: Path

    @property
    def failures(self) -> list[str]:
        """Read the JUnit file."""
        suite = ElementTree.parse(self.folder / "relaxd.xml").getroot()
        results = [str(failure.get("message")) for failure in suite.iter("failure")]
        assert suite.get("failures") == str(bool(results) * 1)
        return results

    @property
    def results(self) -> list[dict[str, Any]]:
        """Read the SARIF file."""
        document = json.loads((self.folder / "relaxd.sarif").read_text())
        result: list[dict[str, Any]] = document["runs"][0]["results"]
        return result


Runner = Callable[..., Ended]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    (folder / "models").mkdir(parents=True)
    (folder / "relaxd.toml").write_text(PROJECT)
    return folder


@pytest.fixture
def run(tmp_path: Path, repository: Path) -> Runner:
    """Runs a script as a runner does, in the repository, with this relaxd for the installed one."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("relaxd", f'exec {sys.executable} -P -m relaxd "$@"'), ("python", ":")):
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    plain = {name: text for name, text in os.environ.items() if not name.startswith("RELAXD_")}
    plain |= {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    plain["GITHUB_ACTION_PATH"] = str(ROOT / "ci")

    def ended(script: str, **variables: str) -> Ended:
        summary = tmp_path / "summary.md"
        summary.unlink(missing_ok=True)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=repository,
            env={**plain, "GITHUB_STEP_SUMMARY": str(summary), **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        assert summary.exists(), done.stderr
        return Ended(done.returncode, summary.read_text(), repository)

    return ended


def commit(repository: Path, activation: str = "Relu", perturb: float = 0.0) -> None:
    """Puts a model with its data beside it into the repository; `perturb` is added to its first
    weights.
    """
    model = perceptron()
    model.graph.node[1].op_type = activation
    (weights,) = (each for each in model.graph.initializer if each.name == "first")
    moved = numpy_helper.to_array(weights) + np.float32(perturb)
    weights.CopyFrom(numpy_helper.from_array(moved, "first"))
    path, data = repository / "models/net.onnx", "net.onnx.data"
    path.with_name(data).unlink(missing_ok=True)
    onnx.save(model, path, save_as_external_data=True, location=data, size_threshold=0)


def github(run: Runner, url: str, move: bool) -> Ended:
    action = yaml.safe_load((ROOT / "ci/action.yml").read_text())
    inputs = {name: arguments.get("default", "") for name, arguments in action["inputs"].items()}
    inputs |= {"server": url, "move": str(move).lower(), "package": "relaxd.whl"}
    environment = {
        name: inputs[text.removeprefix("${{ inputs.").removesuffix(" }}")]
        for step in action["runs"]["steps"]
        for name, text in step.get("env", {}).items()
    }
    scripts = (step["run"] for step in action["runs"]["steps"] if "run" in step)
    return run("\n".join(scripts), **environment)


def test_github_gates_pull_requests(service: Deployment, repository: Path, run: Runner) -> None:
    tag = f"relaxd/bundles:{tag_of('main', 'net', 'native')}"

    def baseline() -> str:
        with service.client() as client:
            return client.resolve(tag)

    commit(repository)
    assert "no baseline yet" in (first := github(run, service.url, move=True)).summary
    assert (first.code, first.failures, first.results) == (0, [], [])
    begun = baseline()

    commit(repository, activation="Sigmoid")
    worse = github(run, service.url, move=True)
    assert worse.code == 4
    (failure,), (result,) = worse.failures, worse.results
    assert failure.startswith("cosine<0.99999: ")
    assert "| failed | net | native | " in worse.summary
    assert failure in worse.summary
    assert failure in result["message"]["text"]
    position = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert position["uri"] == "models/net.onnx"
    assert baseline() == begun, "a merge that fails its gates does not move the baseline"

    commit(repository, perturb=1e-6)
    proposed = github(run, service.url, move=False)
    assert (proposed.code, proposed.failures, baseline()) == (0, [], begun)
    assert "cosine<0.99999: 1 of 'y' at" in proposed.summary
    assert re.search(r"size>10%: [+-]0\.\d\d%", proposed.summary)
    assert github(run, service.url, move=True).code == 0
    assert baseline() != begun
    assert "equal to the baseline" in github(run, service.url, move=False).summary


def test_gitlab_times_both_builds(service: Deployment, repository: Path, run: Runner) -> None:
    def gitlab(branch: str) -> Ended:
        job = yaml.safe_load((ROOT / "ci/gitlab.yml").read_text())["relaxd"]
        variables = {"CI_COMMIT_BRANCH": branch, "CI_DEFAULT_BRANCH": "stable"}
        variables |= {"RELAXD_SERVER": service.url, "RELAXD_PACKAGE": "relaxd.whl"}
        variables["RELAXD_REQUIREMENTS"] = "client.txt"
        variables |= job["variables"]
        return run("\n".join(job["script"]), **variables)

    project = repository / "relaxd.toml"
    project.write_text(PROJECT.replace('"cosine<0.99999", ', '"latency>900%", '))
    commit(repository)
    assert gitlab("stable").code == 0
    commit(repository, perturb=1e-5)
    ended = gitlab("feature")
    assert (ended.code, ended.failures) == (0, [])
    assert "latency>900%: " in ended.summary
    assert "no latency" not in ended.summary
