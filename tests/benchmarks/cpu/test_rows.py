"""The rows name models that are there to be found, at points inside what is declared."""

from typing import Any

from benchmarks.cpu import subjects
from benchmarks.cpu.models import CASES
from benchmarks.cpu.rows import ROWS
from tests.support.models import known
from tests.zoo.cases import CASES as ZOO


def test_every_row_is_of_one_model():
    own = {case.name for case in CASES.values()}
    assert own | known.MODELS.keys() | ZOO.keys() >= ROWS.keys()
    assert not own & known.MODELS.keys()
    assert not own & ZOO.keys()
    assert len(ROWS) >= 29


def test_points_are_inside_the_declared_dims():
    for name, points in ROWS.items():
        dims = known.MODELS[name].dims if name in known.MODELS else subjects.case_of(name).dims
        for point in points:
            assert point.keys() == dims.keys(), name
            for dim, value in point.items():
                low, _, high = dims[dim].partition("%")[0].partition(":")
                assert int(low) <= value <= int(high or low), (name, dim)


def test_an_exports_child_finds_its_case_among_the_benchmarks():
    exports: list[Any] = [case.export for case in CASES.values()]
    assert {export.cases for export in exports} == {"benchmarks.cpu.models"}
    assert [export.key for export in exports] == list(CASES)


def test_a_model_whose_package_is_missing_is_named(monkeypatch):
    monkeypatch.setattr("tests.zoo.case.find_spec", lambda package: None)
    assert subjects.missing_package("mobilenet_v2") == "torchvision"
    assert subjects.missing_package("nudenet") == "nudenet"
    assert subjects.missing_package("minilm") == ""
