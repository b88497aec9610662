"""The table of families: each is a folder, says what it is, and the last takes every program."""

from pathlib import Path

import pytest
from tvm import te

import compiler.passes.cpu.families as package
from compiler.passes.cpu.families.family import Declined, Family
from compiler.passes.cpu.families.table import FAMILIES
from compiler.passes.cpu.schedule import choose
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.stages import Program, read_program
from tests.compiler.passes.families import FAMILIES as GRAPHS

FOLDER = Path(package.__path__[0])
ELSEWHERE = {"copy", "transpose", "generic"}
"""Families whose graphs stand in tests/compiler/passes/families.py without their name."""
EACH = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


def program(value: str) -> Program:
    x = te.placeholder((8, 12), "float32", name="x")
    result = {
        "turned": lambda: te.compute((12, 8), lambda i, j: x[j, i]),
        "odd": lambda: te.compute((8, 12), lambda i, j: x[(i * i) % 8, j]),
    }[value]()
    program = read_program(te.create_prim_func([x, result], "int64"))
    assert program
    return program


def test_every_folder_is_in_the_table() -> None:
    folders = {path.parent.name for path in FOLDER.glob("*/family.py")}
    assert [family.name for family in FAMILIES] == list(dict.fromkeys(f.name for f in FAMILIES))
    assert {family.name for family in FAMILIES} == folders


@EACH
def test_a_family_says_what_it_is(family: Family[object]) -> None:
    assert family.summary
    assert not family.summary.endswith(".")
    assert family.name in {graph.kernel for graph in GRAPHS.values()} | {
        "copy",
        "transpose",
        "generic",
    }


def test_the_first_that_matches_takes_it_and_the_others_said_why() -> None:
    choice = choose(program("turned"), VectorUnit())
    assert choice.family.name == "transpose"
    names = [family.name for family, _ in choice.declined]
    assert names == [family.name for family in FAMILIES[: len(names)]]
    for _, declined in choice.declined:
        assert declined.reason
        assert not declined.reason.endswith(".")


def test_the_last_takes_what_no_other_does() -> None:
    choice = choose(program("odd"), VectorUnit())
    assert choice.family is FAMILIES[-1]
    assert not isinstance(FAMILIES[-1].match(program("turned"), VectorUnit()), Declined)
