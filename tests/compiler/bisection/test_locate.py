"""The search in real builds whose kernels have a planted fault."""

import json
import shlex
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from typer.testing import CliRunner

from compiler import api
from compiler import build as builder
from compiler.bisection import locate, reproducer
from compiler.errors import VerifyError
from compiler.isolation.child import run_child
from compiler.isolation.messages import CompileJob
from compiler.verify.report import Mismatch
from relaxd.cli.app import app
from relaxd.contract.bundle.manifest import REPRODUCER_START
from relaxd.contract.failures import Failure
from relaxd.contract.request import CompileRequest
from tests.compiler.bisection.nets import classifier, net
from tests.compiler.bisection.planted import plant

pytestmark = pytest.mark.slow

DIMS = {"batch": (1, 4), "h": (4, 24), "w": (4, 24)}
CLASSIFIER_DIMS = {name: DIMS[name] for name in ("batch", "h")}
OPTIONS = {"profile": False}


def job_of(folder: Path, model: onnx.ModelProto, **request: Any) -> CompileJob:
    onnx.save(model, folder / "model.onnx")
    declared = CompileRequest.of(**{"dims": DIMS, "options": OPTIONS, **request})
    return CompileJob(
        str(folder / "model.onnx"),
        declared.to_json(),
        "native",
        str(folder / "out"),
        "model",
        reproducer=str(folder / "reproducer"),
    )


def search(
    folder: Path,
    job: CompileJob,
    fault: str,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float = 3600.0,
) -> Failure:
    """The failure of a build with the fault."""
    monkeypatch.setattr(locate, "TASK", "tests.compiler.bisection.planted")
    monkeypatch.setenv("RELAXD_PLANTED", fault)
    with plant(fault), pytest.raises(Mismatch) as caught:
        builder.build(job)
    return locate.locate(job, caught.value, lambda event: None, seconds)


def departs(folder: Path, fault: str) -> bool:
    """True if the reproducer by itself shows the fault, with the inputs that it holds."""
    model = onnx.load(folder / "reproducer" / reproducer.MODEL)
    axes = [axis for value in model.graph.input for axis in value.type.tensor_type.shape.dim]
    carried = {axis.dim_param for axis in axes} & DIMS.keys()
    again = Path(tempfile.mkdtemp(dir=folder))
    job = replace(
        job_of(again, model, dims={name: DIMS[name] for name in carried}),
        samples=str(folder / "reproducer" / reproducer.INPUTS),
    )
    try:
        with plant(fault):
            builder.build(job, more_points=False)
    except Mismatch:
        return True
    return False


@pytest.mark.parametrize("seconds", [0.5, 20.0, 600.0, 5000.0])
def test_a_search_takes_less_time_than_the_build_and_a_quarter_of_an_hour(seconds: float) -> None:
    assert 0 < locate.budget(seconds) < seconds
    assert locate.budget(seconds) <= 900


@pytest.mark.parametrize(
    ("model", "dims", "fault", "node", "op", "least"),
    [
        (net(), DIMS, "sigmoid", "mask", "Sigmoid", ["Sigmoid"]),
        pytest.param(
            *(classifier(), CLASSIFIER_DIMS, "fused tanh", "squash", "Tanh"),
            ["ReduceMean", "Tanh"],
            marks=pytest.mark.long,
        ),
    ],
    ids=["sigmoid", "fused tanh"],
)
def test_the_first_node_that_departs_is_named_and_reproduced(
    model: onnx.ModelProto,
    dims: dict[str, tuple[int, int]],
    fault: str,
    node: str,
    op: str,
    least: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failure = search(tmp_path, job_of(tmp_path, model, dims=dims), fault, monkeypatch)
    assert (failure.code, failure.node, failure.op) == ("verify.mismatch", node, op)
    assert "; float64 agrees with the reference" in failure.message
    assert f"departs is {node!r} ({op})" in failure.message
    assert failure.details["bisection"] == {
        "node": node,
        "op": op,
        "value": failure.details["bisection"]["value"],
        "nodes": len(least),
    }
    least_model = onnx.load(tmp_path / "reproducer" / reproducer.MODEL)
    assert [one.op_type for one in least_model.graph.node] == least
    assert departs(tmp_path, fault)
    assert not departs(tmp_path, "none")


@pytest.mark.long
def test_a_search_that_dies_tells_how_far_it_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELAXD_RECORDS", "1")
    job = job_of(tmp_path, classifier(), dims=CLASSIFIER_DIMS)
    failure = search(tmp_path, job, "tanh", monkeypatch)
    finding = failure.details["bisection"]
    assert failure.node is None
    assert "where the search stopped: died of SIGKILL" in failure.message
    assert f"{finding['first']!r} and {finding['last']!r}" in failure.message
    model = onnx.load(tmp_path / "reproducer" / reproducer.MODEL)
    assert finding["nodes"] == len(model.graph.node) < len(classifier().graph.node)
    assert departs(tmp_path, "tanh")


def test_without_time_the_whole_model_is_the_reproducer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of(tmp_path, classifier(), dims=CLASSIFIER_DIMS)
    failure = search(tmp_path, job, "tanh", monkeypatch, seconds=0.01)
    assert "the node was not found: the time budget of 0 s ran out" in failure.message
    assert sorted(path.name for path in (tmp_path / "reproducer").iterdir()) == [
        "README.md",
        "inputs.npz",
        "reproducer.json",
    ]
    document = json.loads((tmp_path / "reproducer" / REPRODUCER_START).read_text())
    assert document["command"].startswith("relaxd compile MODEL --samples inputs.npz")
    assert document["message"] == failure.message
    samples = str(tmp_path / "reproducer" / reproducer.INPUTS)
    with plant("tanh"), pytest.raises(Mismatch):
        builder.build(replace(job, samples=samples, reproducer=None), more_points=False)


@pytest.mark.long
def test_outputs_that_round_differently_are_found_and_reproduced_by_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tolerances of zero make a fault of rounding, and a scalar is fixed by the request."""
    model = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["": 17]>
        g (float[n, 16] x, float scale) => (float[n, 16] y, float[n, 16] z) {
            a = Neg(x)
            b = Mul(a, scale)
            s = Sigmoid(b)
            z = Neg(a)
            y = Neg(s)
        }"""
    )
    exact = {"profile": False, "atol": 0.0, "rtol": 0.0}
    job = job_of(tmp_path, model, dims={"n": (1, 8)}, consts={"scale": 2}, options=exact)
    # A build of two seconds leaves a search no time.
    failure = search(tmp_path, job, "none", monkeypatch)
    assert (failure.code, failure.node, failure.op) == ("verify.mismatch", "s", "Sigmoid")
    assert failure.details["bisection"]["value"] == "s"
    assert failure.details["reproducer"] == job.reproducer
    assert "numerics" in failure.details
    command = json.loads((tmp_path / "reproducer" / REPRODUCER_START).read_text())["command"]
    arguments = shlex.split(command)[2:]
    monkeypatch.chdir(tmp_path / "reproducer")
    # The build alone: the search after it has been seen.
    monkeypatch.setattr(api, "run_child", lambda job, **settings: builder.build(job))
    ended = CliRunner().invoke(
        app, ["compile", *arguments, "-o", str(tmp_path / "again"), "--json"]
    )
    assert ended.exit_code == 1
    assert json.loads(ended.stdout)["results"][0]["error"]["code"] == "verify.mismatch"


@pytest.mark.long
def test_a_mismatch_of_torchscript_is_reproduced_by_the_whole_model(tmp_path: Path) -> None:
    make = """
import sys, torch
torch.jit.save(torch.jit.script(torch.nn.Sequential(torch.nn.Sigmoid()).eval()), sys.argv[1])
"""
    path = tmp_path / "model.pt"
    subprocess.run([sys.executable, "-W", "ignore", "-c", make, str(path)], check=True)
    request = CompileRequest.of(
        inputs={"input": "float32[n,16]"},
        dims={"n": (1, 8)},
        options={"profile": False, "atol": 0.0, "rtol": 0.0},
    )
    job = CompileJob(
        str(path),
        request.to_json(),
        "native",
        str(tmp_path / "out"),
        "model",
        reproducer=str(tmp_path / "reproducer"),
    )
    with pytest.raises(VerifyError, match="searched for in ONNX models alone") as caught:
        run_child(job)
    assert caught.value.code == "verify.mismatch"
    document = json.loads((tmp_path / "reproducer" / REPRODUCER_START).read_text())
    assert "--input 'input=float32[n,16]'" in document["command"]
    assert (tmp_path / "reproducer" / reproducer.INPUTS).exists()
