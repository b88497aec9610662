"""`relaxd ci` as a pull request and a merge run it, and the files with which runners call it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from relaxd.cli import checking
from relaxd.cli.checks import Check, GateOutcome, markdown
from relaxd.cli.comparing import Comparison
from relaxd.contract.bundle.diff import LatencyChange
from relaxd.reports.figures import Figures
from tests.service.live import Live
from tests.support.forge import StandIn, serve_stand_in

ROOT = Path(__file__).parents[3]
PROJECT = """
fail_if = ["latency>5%"]

[[model]]
path = "net.onnx"
dims = { n = "1:8" }
targets = ["x86-64-v2", "x86-64-v3"]

[[model]]
name = "other"
path = "net.onnx"
dims = { n = 3 }
"""
FILES = ("--junit", "relaxd.xml", "--sarif", "relaxd.sarif")


@pytest.fixture
def project(model: str) -> Path:
    Path("relaxd.toml").write_text(PROJECT)
    return Path("relaxd.toml")


@pytest.fixture
def gates(monkeypatch: pytest.MonkeyPatch) -> list[GateOutcome]:
    """Stubs the comparison of two bundles."""
    result: list[GateOutcome] = []

    def differ(base: Path, head: Path, fail_if: tuple[str, ...]) -> Comparison:
        assert (base / "model.so").read_bytes() != (head / "model.so").read_bytes()
        assert fail_if == ("latency>5%",)
        return Comparison(tuple(result), (LatencyChange({"n": 8}, 2.0, 2.5, 1.25, 1.2, 1.3, 9),))

    monkeypatch.setattr(checking, "differ", differ)
    return result


def test_the_first_merge_then_a_pull_request(
    served: Any, project: Path, gates: list[GateOutcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    first = served("ci", "--move", "--baseline", "feature/one", "--json", *FILES)
    assert first.code == 0, first.err
    assert [check["baseline"] for check in first.json["checks"]] == [None] * 3
    assert "no baseline yet" in Path("summary.md").read_text()
    equal = served("ci", "--baseline", "feature/one", "--json")
    assert all(check["baseline"] == check["digest"] for check in equal.json["checks"])

    Path("net.onnx").write_bytes(b"another model")
    gates.append(GateOutcome("latency>5%", True, "8.1 % slower (7.2 to 9.0)"))
    worse = served("ci", "--baseline", "feature/one", "--move", *FILES)
    assert worse.code == 4
    assert "| failed | net | x86-64-v2 | 2 → 2.5 (+25.0 %) \\* |" in worse.out
    assert "8.1 % slower" in Path("summary.md").read_text()
    suite = ElementTree.parse("relaxd.xml").getroot()
    assert (suite.attrib["tests"], suite.attrib["failures"]) == ("3", "3")
    results = json.loads(Path("relaxd.sarif").read_text())["runs"][0]["results"]
    assert results[0]["ruleId"] == "regression"
    gates[0] = GateOutcome("latency>5%", False, "0.1 % slower")
    better = served("ci", "--baseline", "feature/one", "--move", "--json")
    assert better.code == 0
    assert better.json["checks"][0]["baseline"] == first.json["checks"][0]["digest"], "not moved"
    moved = served("ci", "--baseline", "feature/one", "--json").json["checks"]
    assert moved[0]["baseline"] == moved[0]["digest"] != first.json["checks"][0]["digest"]


@pytest.fixture
def forge(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[StandIn]:
    """GitHub's API, and the variables of a workflow's job for a pull request."""
    (tmp_path / "event.json").write_text(json.dumps({"pull_request": {"number": 12}}))
    with serve_stand_in() as running:
        variables = {"GITHUB_ACTIONS": "true", "GITHUB_API_URL": running.url}
        variables |= {"GITHUB_REPOSITORY": "team/models", "GITHUB_TOKEN": "ghs_secret"}
        variables |= {"GITHUB_EVENT_PATH": "event.json", "GITHUB_OUTPUT": "outputs"}
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield running


def test_the_comment_has_the_report_and_never_changes_the_outcome(
    served: Any, project: Path, gates: list[GateOutcome], forge: StandIn
) -> None:
    first = served("ci", "--move", "--baseline", "commented", "--comment", "--json")
    assert (first.code, first.json["comment"]) == (0, {"url": forge.comments[0]["html_url"]})
    assert "no baseline yet" in forge.comments[0]["body"]
    assert Path("outputs").read_text() == "passed=true\nfailed=0\n"

    Path("net.onnx").write_bytes(b"a model that is commented on")
    gates.append(GateOutcome("latency>5%", True, "8.1 % slower (7.2 to 9.0)"))
    worse = served("ci", "--baseline", "commented", "--comment")
    assert worse.code == 4
    (comment,) = forge.comments
    assert comment["body"].startswith("<!-- relaxd ci: relaxd.toml -->\n### relaxd\n")
    assert "| failed | net | x86-64-v2 | 2 → 2.5 (+25.0 %) \\* |" in comment["body"]
    assert Path("outputs").read_text().endswith("passed=false\nfailed=3\n")

    forge.refuses = 403
    refused = served("ci", "--baseline", "commented", "--comment", "--json")
    assert (refused.code, refused.json["checks"][0]["passed"]) == (4, False)
    assert "Resource not accessible" in refused.json["comment"]["error"]
    assert "warning: no comment" in refused.err
    assert "ghs_secret" not in first.out + worse.out + refused.out + refused.err


def test_accuracy_is_a_gate_with_and_without_a_baseline(
    served: Any, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    accuracy = 'accuracy = { samples = "eval.npz", metric = "f1", min = 0.5, loss = 0.01 }'
    Path("relaxd.toml").write_text(f'[[model]]\npath = "net.onnx"\n{accuracy}\n')
    bases: list[Path | None] = []
    failed = False

    def judge_accuracy(head: Path, base: Path | None, evaluation: Any) -> GateOutcome:
        assert (evaluation.metric, evaluation.samples) == ("f1", Path("eval.npz"))
        bases.append(base)
        return GateOutcome("f1", failed, "0.61")

    monkeypatch.setattr(checking, "judge_accuracy", judge_accuracy)
    ci = ("ci", "--baseline", "labelled")
    first = served(*ci, "--move")
    assert (first.code, bases) == (0, [None])
    assert "no baseline yet; f1: 0.61 |" in first.out
    assert "equal to the baseline; f1: 0.61 |" in served(*ci).out
    Path("net.onnx").write_bytes(b"a model that is less exact")
    failed = True
    assert served(*ci).code == 4
    assert bases[1] is None, "the same bundle is not run twice"
    assert bases[2] is not None


def test_gates_move_an_alias_or_have_a_webhook_told(
    served: Any, project: Path, gates: list[GateOutcome], api: Live
) -> None:
    webhook = api.http.post(
        "/v1/webhooks", json={"url": "https://hooks.example/", "events": ["gate.failed"]}
    ).json()
    ci = ("ci", "--baseline", "promoted", "--alias", "prod", "--move", "--json")
    first = served(*ci)
    assert first.code == 0, first.err
    assert first.json["aliases"] == [
        {"name": name, "alias": "prod", "version": 1, "previous": None} for name in ("net", "other")
    ]
    version = api.http.get("/v1/models/net/versions/prod").json()
    targets = api.http.get(f"/v1/jobs/{version['job_id']}").json()["builds"]
    assert [build["target"] for build in targets] == ["x86-64-v2", "x86-64-v3"]
    again = served(*ci).json["aliases"]
    assert [one["version"] for one in again] == [1, 1], "the same bundles are no new version"

    Path("net.onnx").write_bytes(b"a model that is not promoted")
    gates.append(GateOutcome("latency>5%", True, "8.1 % slower\n(7.2 to 9.0)"))
    worse = served(*ci)
    assert (worse.code, "aliases" in worse.json) == (4, False)
    assert api.http.get("/v1/models/net/versions/latest").json()["version"] == 1
    messages = api.http.get(f"/v1/webhooks/{webhook['id']}/deliveries").json()["deliveries"]
    assert [one["event"] for one in messages] == ["gate.failed"] * 3
    gates[0] = GateOutcome("latency>5%", False, "0.1 % slower")
    assert [one["version"] for one in served(*ci).json["aliases"]] == [2, 2]


def test_aliases_take_a_service_and_a_name_for_it(relaxd: Any, served: Any, model: str) -> None:
    Path("relaxd.toml").write_text("[[model]]\npath = 'net.onnx'\nname = 'Net V2'")
    ended = served("ci", "--alias", "prod")
    assert (ended.code, "'Net V2' cannot be registered" in ended.err) == (2, True)


def test_aliases_without_a_service(relaxd: Any, project: Path) -> None:
    ended = relaxd("ci", "--alias", "prod")
    assert (ended.code, "name one with --server" in ended.err) == (2, True)


def test_a_table_of_what_is_known() -> None:
    checks = [
        Check("a|b\nc", "m", "native", "d", 1, "b", head=Figures(2_000_000, 1.5, 2e-6)),
        Check(
            "b",
            "m",
            "native",
            base=Figures(1_000_000, 1.0, None),
            head=Figures(1_000_000, None, 1e-6),
        ),
    ]
    rows = markdown(checks).splitlines()[4:6]
    assert rows[0].startswith("| passed | a\\|b c | native | 1.5 | 2 | 2.0e-06 |")
    assert rows[1].startswith("| passed | b | native | 1 → ? | 1 | 1.0e-06 |")


def test_a_build_that_fails_hides_no_other(
    served: Any, project: Path, api: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    def behave(cancelled: Any) -> None:
        job: Any = api.compiler.jobs[-1]
        if job.target == "x86-64-v3":
            raise RuntimeError("it broke")

    monkeypatch.setattr(api.compiler, "behaviour", behave)
    Path("net.onnx").write_bytes(b"a third model")
    ended = served("ci", "--baseline", "none", "--json", "--move")
    assert ended.code == 1
    assert [check["passed"] for check in ended.json["checks"]] == [True, False, True]
    assert served("ci", "--baseline", "none", "--json").json["checks"][0]["baseline"] is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "lists no model"),
        ("[[model]]\nname = 'a'", "has no path"),
        ("[[model]]\npath = 'a.onnx'\nspeed = 1", "unknown key 'speed'"),
        ("[[model]]\npath = 'a.onnx'\n[[model]]\npath = 'b/a.onnx'", "two models are named 'a'"),
        ("[[model]]\npath = 'a.onnx'\ndims = { n = '8:2' }", "greater than max"),
        ("x = ", "is not valid TOML"),
        ("[[model]]\npath = 'a.onnx'\nfail_if = 'size>1%'", "must be a list of conditions"),
        (
            "[[model]]\npath = 'a.onnx'\nfail_if = ['speed>1%']",
            "'speed>1%' is not a valid condition",
        ),
    ],
)
def test_a_project_that_means_nothing(relaxd: Any, text: str, says: str) -> None:
    Path("relaxd.toml").write_text(text)
    ended = relaxd("ci")
    assert ended.code == 2
    assert says in ended.err


def run(script: str, tmp_path: Path, **variables: str) -> list[str]:
    """Plays the runner: the arguments that the script gives to relaxd and pip."""
    for name in ("relaxd", "python"):
        stand_in = tmp_path / "bin" / name
        stand_in.parent.mkdir(exist_ok=True)
        stand_in.write_text(
            f'#!/bin/sh\necho {name} server=${{RELAXD_SERVER-unset}} "$@" >> {tmp_path}/calls\n'
        )
        stand_in.chmod(0o755)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    environment = {"PATH": path, "GITHUB_ACTION_PATH": str(ROOT / "ci"), **variables}
    subprocess.run(["bash", "-euo", "pipefail", "-c", script], env=environment, check=True)
    return (tmp_path / "calls").read_text().splitlines()


@pytest.mark.parametrize(("server", "pins"), [("", "worker"), ("https://s", "client")])
def test_the_github_action(tmp_path: Path, server: str, pins: str) -> None:
    action = yaml.safe_load((ROOT / "ci/action.yml").read_text())
    inputs = {name: arguments.get("default", "") for name, arguments in action["inputs"].items()}
    inputs |= {"move": "true", "package": "relaxd.whl server.whl", "server": server}
    inputs |= {"comment": "true", "alias": "prod"}
    lines = []
    *steps, upload = action["runs"]["steps"]
    assert "!cancelled()" in upload["if"], "findings are shown where a gate failed"
    for step in steps:
        variables = {
            name: inputs[text.removeprefix("${{ inputs.").removesuffix(" }}")]
            for name, text in step["env"].items()
        }
        lines = run(step["run"], tmp_path, **variables)
    locked, installed, checked = lines
    path = locked.removeprefix(
        f"python server={server} -m pip install --quiet --no-deps --require-hashes --requirement "
    )
    assert Path(path).resolve() == ROOT / f"requirements/{pins}.txt"
    assert Path(path).is_file()
    assert installed == (
        f"python server={server} -m pip install --quiet --no-index relaxd.whl server.whl"
    )
    assert checked == (
        f"relaxd server={server or 'unset'} ci --config relaxd.toml --baseline main "
        "--junit relaxd.xml --sarif relaxd.sarif --move --alias prod --comment"
    )


@pytest.mark.parametrize(
    ("branch", "token", "options"),
    [("main", "", "--move "), ("feature", "", ""), ("feature", "glpat", "--comment ")],
)
def test_the_gitlab_job(tmp_path: Path, branch: str, token: str, options: str) -> None:
    job = yaml.safe_load((ROOT / "ci/gitlab.yml").read_text())["relaxd"]
    variables = {"CI_COMMIT_BRANCH": branch, "CI_DEFAULT_BRANCH": "main", "RELAXD_SERVER": "s"}
    variables["GITLAB_TOKEN"] = token
    variables |= job["variables"]
    with pytest.raises(subprocess.CalledProcessError):
        run("\n".join(job["script"]), tmp_path, **variables)
    variables["RELAXD_PACKAGE"] = "relaxd.whl"
    with pytest.raises(subprocess.CalledProcessError):
        run("\n".join(job["script"]), tmp_path, **variables)
    variables["RELAXD_REQUIREMENTS"] = "client.txt"
    lines = run("\n".join(job["script"]), tmp_path, **variables)
    assert lines[-1] == (
        f"relaxd server=s ci --config relaxd.toml --baseline main {options}--junit relaxd.xml "
        "--sarif relaxd.sarif"
    )


def test_the_files_fit_their_schemas() -> None:
    for schema, file in (("github-actions", "action.yml"), ("gitlab-ci", "gitlab.yml")):
        command = str(Path(sys.executable).with_name("check-jsonschema"))
        builtin = ["--builtin-schema", f"vendor.{schema}"]
        subprocess.run([command, *builtin, str(ROOT / "ci" / file)], check=True)
