"""Inspecting TorchScript models, and the list of operators."""

import subprocess
import sys
from pathlib import Path

import torch
from torch import nn

from compiler.ir import inspect_torchscript
from compiler.ir.aten import registry
from compiler.ir.aten.__main__ import HEAD, table
from relaxd.contract.request import CompileRequest
from tests.compiler.ir.torchscript.running import save_module, script

ROOT = Path(__file__).parents[4]


class Model(nn.Module):
    def forward(self, x: torch.Tensor, k: int) -> torch.Tensor:
        return torch.relu(x) * k


class Unknown(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.logdet(torch.relu(x))


def test_shapes_of_every_node() -> None:
    report = inspect_torchscript(
        save_module(script(Model())),
        CompileRequest.of(inputs={"x": "float32[n,3]"}, consts={"k": 2}),
    )
    assert report["supported"]
    assert report["arguments"] == {"x": "Tensor", "k": "int"}
    assert report["outputs"][0]["name"] == "output"
    assert list(report["dims"]) == ["n"]
    assert report["operators"] == {"aten::mul": 1, "aten::relu": 1}
    assert [node["outputs"] for node in report["nodes"]] == [["float32[n,3]"], ["float32[n,3]"]]


def test_what_is_not_supported_and_why() -> None:
    report = inspect_torchscript(
        save_module(script(Unknown())), CompileRequest.of(inputs={"x": "float32[3,3]"})
    )
    assert not report["supported"]
    assert [node["supported"] for node in report["nodes"]] == [True, False]
    assert report["nodes"][1]["why"] == "no importer for aten::logdet"


def test_without_declarations_the_arguments_are_listed() -> None:
    report = inspect_torchscript(save_module(script(Model())), CompileRequest.of())
    assert report["inputs"] == ["x", "k"]
    assert report["error"]["code"] == "import.missing_input"


def test_the_documented_list_is_the_registry() -> None:
    assert len(registry.names()) >= 150
    text = (ROOT / "docs" / "reference" / "torchscript.md").read_text()
    assert text.partition(f"{HEAD}\n\n")[2].strip() == table().strip()


def test_the_list_needs_no_torch() -> None:
    hidden = "import runpy, sys; sys.modules['torch'] = None; sys.argv = ['x', '--list']"
    code = f"{hidden}; runpy.run_module('compiler.ir.aten', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "`scaled_dot_product_attention`" in done.stdout
