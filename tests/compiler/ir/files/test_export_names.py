"""The names that `relaxd export` writes beside a model are those that an import declares."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from compiler.errors import LoadError
from compiler.ir.files.export_names import declare_exported
from relaxd.contract.request import CompileRequest

DOCUMENT = {"inputs": {"x": "float32[batch,8]"}, "dims": {"batch": {"min": 1, "max": 64}}}


@pytest.fixture
def archive(tmp_path: Path) -> Any:
    def make(text: str | None) -> Path:
        path = tmp_path / "m.pt2"
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("m/archive_format", "pt2")
            if text is not None:
                file.writestr("m/extra/relaxd.json", text)
        return path

    return make


def test_inputs_and_dims_are_the_files(archive: Any) -> None:
    path = archive(json.dumps(DOCUMENT))
    for source in (path, path.read_bytes()):
        declared = declare_exported(source, CompileRequest.of())
        assert [spec.text for spec in declared.inputs] == ["float32[batch,8]"]
        assert [(dim.name, dim.max) for dim in declared.dims] == [("batch", 64)]


def test_a_declared_dim_replaces_the_files(archive: Any) -> None:
    request = CompileRequest.of(dims={"batch": (1, 8)})
    declared = declare_exported(archive(json.dumps(DOCUMENT)), request)
    assert [(dim.name, dim.max) for dim in declared.dims] == [("batch", 8)]


def test_a_declared_input_replaces_all(archive: Any) -> None:
    request = CompileRequest.of(inputs={"x": "float32[n,8]"})
    assert declare_exported(archive(json.dumps(DOCUMENT)), request) is request


def test_a_file_without_them_declares_nothing(archive: Any) -> None:
    request = CompileRequest.of()
    assert declare_exported(archive(None), request) is request


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"inputs": {"x": 3}, "dims": {}}', '{"inputs": {}, "dims": {"n": "a"}}'],
)
def test_malformed_ones_are_refused(archive: Any, text: str) -> None:
    with pytest.raises(LoadError) as caught:
        declare_exported(archive(text), CompileRequest.of())
    assert caught.value.failure.code == "load.export_names"
