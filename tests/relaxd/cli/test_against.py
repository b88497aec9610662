"""`relaxd bench --against`: other engines run the bundle's model in turns with it."""

import json
import re
import subprocess
import sys

import onnx
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

from relaxd.cli.app import app

QUICK = ("--rounds", 6, "--seconds", 0, "--threads", 1)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The ONNX model of the bundle `dims`; `factor`: a wrong one's."""

    def make(factor=1.0, name="model"):
        inputs = {"x": ["n", "m"], "wide": ["n", "2*m"], "scale": []}
        values = {"start": [0], "end": [1 << 30], "axis": [1], "step": [2]}
        nodes = [
            helper.make_node("Slice", ["wide", "start", "end", "axis", "step"], ["half"]),
            helper.make_node("Add", ["x", "half"], ["sum"]),
            helper.make_node("Mul", ["sum", "scale"], ["scaled"]),
            helper.make_node("Mul", ["scaled", "factor"], ["y"]),
        ]
        graph = helper.make_graph(
            nodes,
            "dims",
            [helper.make_tensor_value_info(k, TensorProto.FLOAT, v) for k, v in inputs.items()],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", "m"])],
            [helper.make_tensor(k, TensorProto.INT64, [1], v) for k, v in values.items()]
            + [helper.make_tensor("factor", TensorProto.FLOAT, [], [factor])],
        )
        path = tmp_path_factory.mktemp("against") / f"{name}.onnx"
        onnx.save(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10),
            path,
        )
        return path

    return make


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr("relaxd.timing.rounds.PAUSE", 0.0)
    monkeypatch.setattr("relaxd.timing.rounds.REST", 0.0)


def bench(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["bench", *map(str, arguments)], env={"COLUMNS": "200"})
    return result.exit_code, result.output


def test_onnx_runtime_runs_the_same_points_on_as_many_threads(bundles, model):
    code, out = bench(
        bundles / "dims", "--against", model(), "--dim", "n=1,8", "--dim", "m=64", *QUICK, "--json"
    )
    assert code == 0, out
    report = json.loads(out)
    assert report["threads"] == 1
    assert [point["dims"] for point in report["points"]] == [{"n": 1, "m": 64}, {"n": 8, "m": 64}]
    for point in report["points"]:
        ours, theirs = point["engines"]["relaxd"], point["engines"]["onnxruntime"]
        assert len(ours["rounds"]) == len(theirs["rounds"]) == 6
        assert ours["difference"] < 1e-6
        ratio = point["ratios"]["onnxruntime"]
        assert ratio["rounds"] == [
            one / other for one, other in zip(ours["rounds"], theirs["rounds"], strict=True)
        ]
        assert 0 < ratio["low"] <= ratio["median"] <= ratio["high"]
    assert min(report["peak_resident_bytes"].values()) > 10 << 20
    assert "the geometric mean of 2 points." in report["summary"]


def test_a_table_and_one_sentence_for_people(bundles, model):
    code, out = bench(bundles / "dims", "--against", model(), "--dim", "n=8", *QUICK)
    assert code == 0, out
    lines = out.splitlines()
    assert re.sub(r"  +", "|", lines[0].strip()) == (
        "N|M|relaxd ms|ONNX Runtime ms|RATIO TO ONNX Runtime"
    )
    assert re.match(r"8 +2 +[\d.]+ +[\d.]+ +[\d.]+ \([\d.]+-[\d.]+\)", lines[1].strip())
    assert "6 rounds in turns, 1 threads each; peak resident memory: relaxd " in out
    assert re.fullmatch(
        r"relaxd takes [\d.]+ of ONNX Runtime's time \([\d.]+ to [\d.]+"
        r"(: no difference was measured)?\) at n=8 m=2\.",
        lines[-1],
    )


SCRIPT = """
import sys, torch
class Half(torch.nn.Module):
    def forward(self, x, wide, scale):
        return (x + wide[:, ::2]) * scale
torch.jit.script(Half()).save(sys.argv[1])
"""


EXPORT = """
import sys, torch
class Half(torch.nn.Module):
    def forward(self, x):
        return x / 2
batch = torch.export.Dim("batch", min=1, max=64)
program = torch.export.export(Half(), (torch.ones(2, 3),), dynamic_shapes={"x": {0: batch}})
torch.export.save(program, sys.argv[1])
"""


def test_torch_runs_programs_of_torch_export(tmp_path):
    """By the order of the inputs; the names of arguments are not the program's."""
    path = tmp_path / "m.pt2"
    subprocess.run([sys.executable, "-c", EXPORT, str(path)], check=True)
    code = (
        "import sys, numpy as np; from pathlib import Path; from relaxd.timing import engines; "
        "run = engines.load_torch(engines.Subject(Path(sys.argv[1]), ('x',), 1)); "
        "(y,) = run({'x': np.ones((5, 3), 'f4')}); assert y.shape == (5, 3) and (y == 0.5).all()"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)


def test_torch_runs_torchscript(bundles, tmp_path, monkeypatch):
    model = tmp_path / "half.pt"
    (tmp_path / "write.py").write_text(SCRIPT)
    subprocess.run([sys.executable, tmp_path / "write.py", model], check=True)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    code, out = bench(bundles / "dims", "--against", model, *QUICK, "--json")
    assert code == 0, out
    (point,) = json.loads(out)["points"]
    assert point["engines"]["torch"]["milliseconds"] > 0
    assert point["engines"]["relaxd"]["difference"] < 1e-6


def test_a_model_that_computes_something_else_is_noticed(bundles, model):
    code, out = bench(bundles / "dims", "--against", model(factor=3.0), *QUICK)
    assert code == 0, out
    assert "warning: outputs of relaxd differ by 0.6" in out


def test_a_model_with_other_inputs_is_no_result(bundles, tmp_path):
    graph = helper.make_graph(
        [helper.make_node("Neg", ["a"], ["b"])],
        "neg",
        [helper.make_tensor_value_info("a", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("b", TensorProto.FLOAT, [2])],
    )
    onnx.save(helper.make_model(graph, ir_version=10), tmp_path / "neg.onnx")
    code, out = bench(bundles / "dims", "--against", tmp_path / "neg.onnx", *QUICK, "--json")
    assert code == 1
    error = json.loads(out)["error"]
    assert error["message"].startswith("no engine ran beside relaxd: onnxruntime fails: ")
    assert "the model that the bundle was made of" in error["hint"]


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        (["--engine", "onnxruntim"], "there is no engine 'onnxruntim'", "onnxruntime"),
        (["--engine", "torch"], "torch does not run model.onnx", "onnxruntime,openvino"),
        (["--runs", 3], "--runs does nothing with --against", "leave it out"),
    ],
)
def test_what_cannot_be_raced(bundles, model, options, message, hint):
    code, out = bench(bundles / "dims", "--against", model(), *options, "--json")
    error = json.loads(out)["error"]
    assert code == 2
    assert message in error["message"]
    assert hint in error["hint"]


@pytest.mark.parametrize("option", [("--engine", "openvino"), ("--rounds", 7), ("--seconds", 1)])
def test_options_of_a_comparison_alone_are_refused(bundles, option):
    code, out = bench(bundles / "dims", *option, "--json")
    assert code == 2
    assert "without --against" in json.loads(out)["error"]["message"]


def test_an_engine_that_is_not_installed_says_what_to_install(bundles, model, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, out = bench(bundles / "dims", "--against", model(), "--engine", "openvino", "--json")
    error = json.loads(out)["error"]
    assert code == 1
    assert error["code"] == "cli.extra_missing"
    assert error["hint"] == "pip install openvino"


def test_no_model(bundles, tmp_path):
    code, out = bench(bundles / "dims", "--against", tmp_path / "absent.onnx")
    assert code == 2
    assert "no model at" in out
