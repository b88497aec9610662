"""MODULE:FUNCTION: what may be named, and what is said of what may not."""

import sys
from pathlib import Path

import pytest
import torch

from relaxd.errors import DeclarationError
from relaxd.torch.errors import ExportError, TorchMissing, load_torch
from relaxd.torch.target import load_target

NETS = "tests.relaxd.torch.nets"


@pytest.mark.parametrize("name", ["linear", "Recurrent"])
def test_modules_and_classes_have_no_example(name: str) -> None:
    module, example = load_target(f"{NETS}:{name}")
    assert isinstance(module, torch.nn.Module)
    assert example is None


def test_functions_give_their_example_too() -> None:
    _, example = load_target(f"{NETS}:make_nested")
    assert example["scale"] == 2.0


def test_files_need_no_package(tmp_path: Path) -> None:
    (tmp_path / "other_net.py").write_text("import torch\nnet = torch.nn.ReLU()\n")
    module, _ = load_target(f"{tmp_path / 'other_net.py'}:net")
    assert isinstance(module, torch.nn.ReLU)
    sys.path.remove(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nets", "cannot read 'nets'"),
        ("no_such_package.nets:make", "there is no Python module 'no_such_package'"),
        ("no_such_file.py:make", "there is no file"),
        (f"{NETS}:make_nestde", "has no 'make_nestde'.*did you mean make_nested"),
        (f"{NETS}:make_number", "gives int"),
        (f"{NETS}:make_sized", "cannot be called without arguments"),
        (f"{NETS}:nn.functional", "is module"),
    ],
)
def test_what_cannot_be_named(text: str, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        load_target(text)


def test_errors_of_the_users_code_have_their_line() -> None:
    with pytest.raises(ExportError, match=r"nets.py:\d+: raise RuntimeError.*no weights"):
        load_target(f"{NETS}:make_broken")


def test_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(TorchMissing, match="pip install torch"):
        load_torch()


def test_with_a_torch_before_the_archives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.7.1+cpu")
    with pytest.raises(TorchMissing, match="too old"):
        load_torch()
