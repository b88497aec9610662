"""Exports of small modules: which dims stay, by which way, and what is said where none does."""

import json
import warnings
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

import relaxd.torch
from compiler.ir import inspect_exported
from relaxd.contract.request import CompileRequest
from relaxd.errors import DeclarationError
from relaxd.torch import Exported, ExportError, Form
from relaxd.torch.assumptions import collect_assumptions
from tests.relaxd.torch import nets

TEXT = {"x": "float32[batch,t,4]"}
RANGES = {"batch": (1, 64), "t": (1, 100)}


def export(module: Any, folder: Path, example: Any = None, **declared: Any) -> Exported:
    return relaxd.torch.export(module, example, output=folder / "m.pt2", **declared)


def read_names(path: Path) -> Any:
    with zipfile.ZipFile(path) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("extra/relaxd.json")]
        return json.loads(archive.read(name))


def inspect(exported: Exported) -> Any:
    return inspect_exported(exported.path, CompileRequest.of())


def test_recurrent_layers_keep_their_time_axis(tmp_path: Path) -> None:
    exported = export(nets.Recurrent, tmp_path, inputs=TEXT, dims=RANGES)
    assert exported.form is Form.PROGRAM
    assert {"batch": 1, "t": 1} in exported.checked
    report = inspect(exported)
    assert report["supported"]
    assert report["inputs"][0]["shape"] == ["batch", "t", 4]
    assert report["dims"]["t"]["max"] == 100
    assert {"aten::lstm", "aten::gru"} <= report["operators"].keys()
    program = torch.export.load(exported.path)
    x = torch.randn(2, 9, 4)
    assert program.module()(x).shape == (2, 9, 3)


def test_torchs_own_functions_are_back_after_an_export(tmp_path: Path) -> None:
    before = torch._VF.lstm
    export(nets.Recurrent, tmp_path, inputs=TEXT, dims=RANGES)
    assert torch._VF.lstm is before


def test_an_encoder_with_a_padding_mask(tmp_path: Path) -> None:
    exported = export(
        nets.Encoder,
        tmp_path,
        inputs={"ids": "int64[batch,t]", "pad": "bool[batch,t]"},
        dims=RANGES,
    )
    assert (exported.form, exported.losses) == (Form.PROGRAM, ())
    assert [spec["shape"] for spec in inspect(exported)["inputs"]] == [["batch", "t"]] * 2


def test_sizes_that_int_reads_stay_dims(tmp_path: Path) -> None:
    exported = export(nets.Cast, tmp_path, inputs=TEXT, dims=RANGES)
    assert exported.form is Form.PROGRAM
    first = exported.notes[0]
    assert "dim batch can only be" in first
    assert "nets.py:" in first
    assert "rows = int(x.shape[0])" in first
    assert inspect(exported)["dims"]["batch"] == {"min": 1, "max": 64, "multiple": 1}


def test_a_mask_of_a_python_loop_becomes_a_script_and_says_what_is_lost(tmp_path: Path) -> None:
    exported = export(nets.LoopMask, tmp_path, inputs=TEXT, dims=RANGES)
    assert exported.form is Form.SCRIPT
    assert "for i in range(time):" in exported.notes[0]
    assert "neither ranges nor guards" in exported.losses[0]
    assert read_names(exported.path)["inputs"] == {"x": "float32[batch,t,4]"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        script = torch.jit.load(exported.path)
    assert script(torch.ones(1, 3, 4))[0].tolist() == [4.0, -4.0, -12.0]


def test_a_trace_names_the_lines_that_it_fixed(tmp_path: Path) -> None:
    exported = export(nets.Branch, tmp_path, inputs=TEXT, dims=RANGES)
    assert exported.form is Form.TRACE
    assert any("branches and loops are fixed" in loss for loss in exported.losses)


def test_what_no_way_keeps_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ExportError) as caught:
        export(nets.Rows, tmp_path, inputs={"x": "float32[batch,t]"}, dims=RANGES)
    error = caught.value
    assert "dim t can only be" in error.message
    assert "for i in range(time)" in error.message
    assert error.details["dims"] == ["t"]
    assert "nets.py:" in error.details["source"]
    assert "--dim t=" in str(error.hint)
    assert not (tmp_path / "m.pt2").exists()


def test_a_fixed_dim_is_what_the_hint_says(tmp_path: Path) -> None:
    exported = export(
        nets.Rows, tmp_path, inputs={"x": "float32[batch,t]"}, dims={**RANGES, "t": 5}
    )
    assert exported.form is Form.PROGRAM
    assert inspect(exported)["inputs"][0]["shape"] == ["batch", 5]


def test_multiples_that_the_code_needs(tmp_path: Path) -> None:
    exported = export(
        nets.Strided,
        tmp_path,
        inputs={"x": "float32[batch,1,h,w]"},
        dims={"batch": (1, 4), "h": "8:64%8", "w": "8:64%4"},
    )
    assert exported.form is Form.PROGRAM
    report = inspect(exported)
    assert report["inputs"][0]["shape"] == ["batch", 1, "h", "w"]
    assert report["dims"]["h"] == {"min": 8, "max": 64, "multiple": 8}
    assert report["dims"]["w"] == {"min": 8, "max": 64, "multiple": 4}


def test_nested_examples_of_one_row(tmp_path: Path) -> None:
    """A size of 1 in the example would be a constant to torch: another one is traced."""
    module, example = nets.Nested(), (torch.ones(1, 4), {"b": torch.ones(1, 4)}, torch.ones(1, 4))

    class Fixed(torch.nn.Module):
        def forward(self, x: Any, extra: Any, *rest: Any) -> Any:
            return module(x, extra, *rest, scale=2.0)

    rows = dict.fromkeys(("x", "extra_b", "rest_0"), "float32[n,4]")
    exported = export(Fixed(), tmp_path, example, inputs=rows, dims={"n": (1, 9)})
    assert [spec["name"] for spec in inspect(exported)["inputs"]] == ["x", "extra_b", "rest_0"]
    assert {spec["shape"][0] for spec in inspect(exported)["inputs"]} == {"n"}


def test_dims_by_the_axes_of_an_example(tmp_path: Path) -> None:
    exported = export(nets.linear, tmp_path, torch.ones(1, 4), dims={"input_0": (1, 8)})
    assert inspect(exported)["inputs"][0]["shape"] == ["input_0", 4]


def test_ranges_in_which_the_module_itself_fails(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"the module itself fails at batch=1 t=1.*too short"):
        export(nets.Small, tmp_path, inputs={"x": "float32[batch,t]"}, dims=RANGES)


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"dims": {"n": (1, 4)}}, "there is no example of the input 'x'"),
        ({"inputs": {"y": "float32[n,t]"}}, "there is no example of the input 'x'"),
        ({"inputs": {"x": "float32[n,3]"}, "dims": {"m": (1, 4)}}, "no input has a dim 'm'"),
    ],
)
def test_declarations_that_do_not_fit(
    tmp_path: Path, declared: dict[str, Any], message: str
) -> None:
    with pytest.raises(DeclarationError, match=message):
        export(nets.Small, tmp_path, **declared)


def test_declarations_beside_an_example_that_differ(tmp_path: Path) -> None:
    for spec in ("float64[n,4]", "float32[n]", "float32[n,5]"):
        with pytest.raises(DeclarationError, match="example"):
            export(nets.Small, tmp_path, torch.ones(3, 4), inputs={"x": spec})


def test_a_torch_that_tells_no_guards_exports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    monkeypatch.delattr(ShapeEnv, "_log_guard")
    with collect_assumptions({}) as collected:
        pass
    assert collected == []
