"""The table of tuning constants: every number of a `plan` module, with a case of its own kind."""

import ast
from pathlib import Path

import pytest

from benchmarks.kernels import __main__ as benchmark
from benchmarks.kernels.constants import (
    CONSTANTS,
    ON_BOARDS,
    SHARED,
    Constant,
    constants_called,
)
from benchmarks.kernels.timing import kernels_of, text_of
from compiler import passes, targets

ONE_OF_EACH = [
    *({one.kind: one for one in CONSTANTS if one.kind in ("pooling", "transpose")}.values()),
    next(one for one in CONSTANTS if one.name == f"{SHARED}.VECTORS"),
]


def test_every_number_of_a_plan_is_in_the_table() -> None:
    folder = Path(passes.__file__).parent / "cpu"
    numbers = {
        f"{path.parent.name}.{name.id}"
        for path in folder.rglob("plan.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign)
        for name in ast.walk(node.targets[0])
        if isinstance(name, ast.Name)
    }
    names = [one.name for one in CONSTANTS]
    assert len(set(names)) == len(names)
    assert {*names, *ON_BOARDS} == numbers


@pytest.mark.parametrize("constant", CONSTANTS, ids=lambda one: one.name)
def test_each_rests_on_a_case(constant: Constant) -> None:
    case = constant.find_case()
    assert constant.kind in (case.family, SHARED)
    assert constant.candidates
    assert constant.value not in constant.candidates


def test_constants_are_called_by_their_kind_too() -> None:
    assert len(constants_called("pooling")) == 8
    (one,) = constants_called("pooling.COLUMNS")
    assert one.value == 4
    assert constants_called("") == list(CONSTANTS)
    assert constants_called("COLUMNS") == []


def test_they_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert benchmark.main(["--constant"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(CONSTANTS)
    assert lines[0].split()[:2] == ["attention.DECODE_KEYS", "256"]


@pytest.mark.slow
@pytest.mark.parametrize("constant", ONE_OF_EACH, ids=lambda one: one.name)
def test_other_values_make_other_loops(constant: Constant) -> None:
    case, target = constant.find_case(), targets.resolve("x86-64-v4")
    own = text_of(kernels_of(case, target))
    with constant.replaced_by(constant.candidates[0]):
        assert text_of(kernels_of(case, target)) != own
    assert text_of(kernels_of(case, target)) == own
