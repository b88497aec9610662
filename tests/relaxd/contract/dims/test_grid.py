from pathlib import Path
from typing import Any

import pytest

from relaxd.cli.project import read_project
from relaxd.contract.dims.grid import ProfileOptions
from relaxd.contract.options import CompileOptions
from relaxd.errors import DeclarationError


@pytest.mark.parametrize(
    ("value", "document"),
    [
        ({"grid": "auto"}, {"grid": "auto"}),
        ({"grid": {"s": [64, 1, 64], "b": 4}}, {"grid": {"b": [4], "s": [1, 64]}}),
        ({"grid": None}, True),
        ({}, True),
        (False, False),
    ],
)
def test_equal_options_give_equal_documents(value: Any, document: Any) -> None:
    options = CompileOptions(profile=value)
    assert options.to_json()["profile"] == document
    assert CompileOptions.from_json(options.to_json()) == options
    assert bool(options.profile) is (value is not False)
    assert isinstance(options.profile, bool | ProfileOptions)


def test_a_project_file_declares_one(tmp_path: Path) -> None:
    (tmp_path / "relaxd.toml").write_text(
        '[[model]]\npath = "m.onnx"\noptions = { profile = { grid = { n = [1, 8] } } }\n'
    )
    (model,) = read_project(tmp_path / "relaxd.toml")
    assert model.request.options.profile == ProfileOptions((("n", (1, 8)),))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "true, false or an object"),
        ("auto", "true, false or an object"),
        ({"gird": "auto"}, "unknown key 'gird'"),
        ({"grid": "all"}, "'auto' or values by dim"),
        ({"grid": {}}, "'auto' or values by dim"),
        ({"grid": {"n": []}}, "must be whole numbers"),
        ({"grid": {"n": [1.5]}}, "must be whole numbers"),
        ({"grid": {"n": [True]}}, "must be whole numbers"),
        ({"grid": {"n": [-1]}}, "must be whole numbers"),
        ({"grid": {"": [1]}}, "cannot be the name of a dim"),
        ({"grid": {"n": list(range(9)), "m": list(range(8))}}, "72 points, more than 64"),
    ],
)
def test_what_is_no_grid_is_refused_with_an_example(value: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=message) as refused:
        CompileOptions(profile=value)
    assert refused.value.field.startswith("options.profile")
    assert '{"grid": "auto"}' in (refused.value.hint or "")
