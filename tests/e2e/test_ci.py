"""A repository's pull requests and merges, as GitHub's and GitLab's runners check them with the
files in `ci/`: a real service compiles, and `relaxd diff` runs both builds.
"""

import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
import uvicorn
import yaml
from onnx import numpy_helper

from relaxd.client.baselines import tag_of
from tests.e2e.deployment import ROOT, Deployment, until
from tests.relaxd.test_serving_page import load_page
from tests.support import plain_http
from tests.support.models.small import perceptron
from tests.support.servers import serve

pytestmark = pytest.mark.slow
# What the tests show is the same in either form of the service.
embedded = pytest.mark.parametrize("service", ["embedded"], indirect=True)

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


def github(run: Runner, url: str, move: bool, alias: str = "") -> Ended:
    action = yaml.safe_load((ROOT / "ci/action.yml").read_text())
    inputs = {name: arguments.get("default", "") for name, arguments in action["inputs"].items()}
    inputs |= {"server": url, "move": str(move).lower(), "package": "relaxd.whl", "alias": alias}
    environment = {
        name: inputs[text.removeprefix("${{ inputs.").removesuffix(" }}")]
        for step in action["runs"]["steps"]
        for name, text in step.get("env", {}).items()
    }
    scripts = (step["run"] for step in action["runs"]["steps"] if "run" in step)
    return run("\n".join(scripts), **environment)


@embedded
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
    assert re.search(r"size>10%: [+-]\d\.\d\d%", proposed.summary)
    assert github(run, service.url, move=True).code == 0
    assert baseline() != begun
    assert "equal to the baseline" in github(run, service.url, move=False).summary


@embedded
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


@dataclass
class Clients:
    """Threads that ask a program without a pause: each answer's status and version."""

    url: str
    answers: list[tuple[int, str]] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def ask(self) -> None:
        x = np.zeros((2, 3, 32), np.float32).tolist()
        while not self.ended.is_set():
            answer = plain_http.post(f"{self.url}/predict", json={"x": x}, timeout=60)
            (rows,) = answer.json().values()
            assert np.allclose(np.sum(rows, -1), 1, atol=1e-5), "a softmax"
            self.answers.append((answer.status_code, answer.headers["model-version"]))

    @contextmanager
    def asking(self) -> Iterator[None]:
        threads = [threading.Thread(target=self.ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.ended.set()
            for thread in threads:
                thread.join()

    def wait(self) -> None:
        """Until both have been answered again."""
        seen = len(self.answers)
        until(lambda: len(self.answers) > seen + 4, 120, "answers")


def test_gates_move_an_alias_and_a_program_follows_it_by_a_webhook(
    tmp_path: Path, repository: Path, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole: a service, the action of ci/, a webhook over HTTP, and serving-alias.md's program."""
    folder = tmp_path / "service"
    folder.mkdir()
    with (
        Deployment.start_embedded(folder, RELAXD_WEBHOOK_PRIVATE="true") as service,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        wanted = {"url": f"{url}/moved", "events": ["alias.moved"]}
        webhook = plain_http.post(f"{service.url}/v1/webhooks", json=wanted).json()
        commit(repository)
        assert github(run, service.url, move=True, alias="prod").code == 0
        variables = {"MODEL": "net@prod", "RELAXD_SERVER": service.url, "POLL_S": "3600"}
        for name, value in {**variables, "WEBHOOK_SECRET": webhook["secret"]}.items():
            monkeypatch.setenv(name, value)
        program: Any = load_page("follow")
        config = uvicorn.Config(program.app, log_config=None)

        def version() -> Any:
            return plain_http.get(f"{url}/readyz").json()["version"]

        clients = Clients(url)
        with serve(config, listener):
            until(lambda: version() == 1, 120, "the first version")
            with clients.asking():
                clients.wait()
                commit(repository, activation="Sigmoid")
                assert github(run, service.url, move=True, alias="prod").code == 4
                assert version() == 1, "a version that fails its gates moves no alias"
                commit(repository, perturb=1e-6)
                assert github(run, service.url, move=True, alias="prod").code == 0
                until(lambda: version() == 2, 120, "the webhook")
                clients.wait()
    assert {status for status, _ in clients.answers} == {200}
    versions = [version for _, version in clients.answers]
    assert (versions[0], versions[-1], {*versions}) == ("1", "2", {"1", "2"})
