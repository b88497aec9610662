import json
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from compiler import compile_model
from tests.support.models.small import perceptron

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A build, and one of another network with a smaller range."""
    folder = tmp_path_factory.mktemp("builds")
    options = {"verify": False, "profile": False}
    compile_model(perceptron(), output=folder / "base", options=options)
    changed = perceptron()
    changed.graph.node[1].op_type = "Sigmoid"
    dims = {"batch": (1, 8)}
    compile_model(changed, output=folder / "head", dims=dims, options={**options, "seed": 3})
    return folder / "base", folder / "head"


def test_what_changed_is_listed(relaxd: Any, builds: tuple[Path, Path]) -> None:
    base, head = map(str, builds)
    result = json.loads(relaxd("diff", base, head, "--seconds", "0", "--json").out)
    assert {change["name"] for change in result["kernels"]} >= {"fused_panel_matmul_relu"}
    assert result["dims"] == [{"name": "batch", "base": "1:", "head": "1:8"}]
    assert result["options"] == [{"name": "seed", "base": 0, "head": 3}]
    assert result["toolchain"] == []
    (output,) = result["outputs"]
    assert output["max_abs"] > 0
    assert output["cosine"] < 1


def test_a_regression_has_an_exit_code_and_formats_of_its_own(
    relaxd: Any, builds: tuple[Path, Path]
) -> None:
    base, head = map(str, builds)
    gates = ("--fail-if", "max>1e-6", "--fail-if", "size>50%", "--seconds", "0")
    ended = relaxd("diff", base, head, *gates, "--format", "junit")
    assert ended.code == 4
    suite = ElementTree.fromstring(ended.out)
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    sarif = json.loads(relaxd("diff", base, head, *gates, "--format", "sarif").out)
    (result,) = sarif["runs"][0]["results"]
    assert result["ruleId"] == "max>1e-6"
    assert "| failed | max>1e-6 |" in relaxd("diff", base, head, *gates, "--format", "md").out


def test_builds_for_another_machine_are_compared_but_not_run(
    relaxd: Any, builds: tuple[Path, Path], tmp_path: Path
) -> None:
    folders = []
    for built in builds:
        folders.append(shutil.copytree(built, tmp_path / built.name))
        manifest = folders[-1] / "manifest.json"
        document = json.loads(manifest.read_text())
        document["load"]["arch"] = "s390x"
        manifest.write_text(json.dumps(document))
    gates = ("--fail-if", "latency>5%", "--fail-if", "cosine<0.999", "--fail-if", "size>0.0001%")
    ended = relaxd("diff", *map(str, folders), *gates, "--format", "json")
    result = json.loads(ended.out)
    latency, cosine, size = result["gates"]
    assert (latency["failed"], cosine["failed"]) == (False, False)
    assert "s390x" in result["not_run"]
    assert result["not_run"] in latency["said"]
    assert result["not_run"] in cosine["said"]
    assert ended.code == (4 if size["failed"] else 0)
    assert result["kernels"]
    assert result["not_run"] in ended.err
    assert "Neither build was run" in relaxd("diff", *map(str, folders), "--format", "md").out


def test_equal_builds_pass(relaxd: Any, builds: tuple[Path, Path], tmp_path: Path) -> None:
    again = tmp_path / "again"
    shutil.copytree(builds[0], again)
    gates = ("--fail-if", "latency>400%", "--fail-if", "cosine<0.999", "--fail-if", "size>0%")
    ended = relaxd("diff", str(builds[0]), str(again), *gates, "--seconds", "0.1")
    assert ended.code == 0
    assert "slower by" in ended.out
