"""The fuzzer of hostile inputs finds what it is for, and a sample of it finds nothing."""

import ctypes
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from compiler.ir.ops.shape import indexing
from compiler.verify.emulation import engine
from tests.fuzz.child import Child, Died
from tests.fuzz.hostile import __main__ as hostile
from tests.fuzz.hostile import engines
from tests.fuzz.hostile.engines import Order, Refused
from tests.fuzz.hostile.guard import Guard, compile_guard
from tests.fuzz.hostile.judge import Flavour, Judge, Verdict, compare_sides
from tests.fuzz.hostile.subject import BaseSubject
from tests.fuzz.hostile.table import SUBJECTS
from tests.fuzz.hostile.values import edges
from tests.support.servers import missing

SEED = 4


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(compile_guard(tmp_path_factory.mktemp("guard")))


def read_at(question: tuple[str, bool, int]) -> int:
    """A byte of a block of 100, whatever is there."""
    path, at_end, position = question
    block = Guard(path, at_end, 0xAA).empty((100,), np.dtype(np.uint8))
    return ctypes.c_uint8.from_address(block.ctypes.data + position).value


@pytest.mark.parametrize(("at_end", "beyond"), [(True, 100), (False, -1)])
def test_who_reads_beyond_a_block_dies(guard: str, at_end: bool, beyond: int) -> None:
    child = Child("tests.fuzz.hostile.test_hostile:read_at", 60)
    assert [child.ask((guard, at_end, position)) for position in (0, 99)] == [0xAA, 0xAA]
    assert isinstance(child.ask((guard, at_end, beyond)), Died)
    child.stop()


def make_unchecked(order: Order) -> Refused | None:
    """Build as `make` does, with no integer checked."""
    indexing.check_within = lambda *_: None
    return engines.make(order)


@pytest.fixture(scope="module")
def unchecked() -> Iterator[Judge]:
    judge = Judge(Flavour.STANDALONE)
    judge.makes[False] = Child("tests.fuzz.hostile.test_hostile:make_unchecked", 300)
    yield judge
    judge.stop()


@pytest.mark.parametrize("name", ["ReverseSequence", "Gather"])
def test_an_unchecked_position_is_found(unchecked: Judge, name: str) -> None:
    assert unchecked.build(SUBJECTS[name]) is None
    verdicts = {unchecked.judge(SUBJECTS[name], SEED, number).verdict for number in range(12)}
    assert Verdict.DIED in verdicts


def test_an_answer_that_depends_on_what_lies_around_is_a_finding() -> None:
    lhs, rhs = [np.array([1.0, np.nan])], [np.array([1.0, 2.0])]
    assert compare_sides([lhs, lhs]).verdict is Verdict.ANSWERED
    assert compare_sides([lhs, rhs]).verdict is Verdict.DISCLOSED
    refused = Refused("check", "an index is out of range")
    assert compare_sides([refused, refused]).verdict is Verdict.REFUSED
    assert compare_sides([refused, lhs]).verdict is Verdict.DISCLOSED
    assert compare_sides([refused, Refused("trap", "", typed=False)]).verdict is Verdict.UNTYPED


def test_limits_and_what_is_beyond_them_are_drawn() -> None:
    values = edges(-4, 3, np.dtype(np.int64)).tolist()
    assert {-5, -4, 0, 3, 4, 2**31, -(2**31) - 1, 2**62, -(2**63), 2**63 - 1} <= set(values)
    assert edges(0, 5, np.dtype(np.uint8)).tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 10]


def test_a_draw_is_the_same_each_time() -> None:
    for subject in SUBJECTS.values():
        lhs, rhs = subject.feed(SEED, 3), subject.feed(SEED, 3)
        assert [array.tobytes() for array in lhs.values()] == [
            array.tobytes() for array in rhs.values()
        ]


def _sampled(flavour: Flavour, operators: str, draws: int) -> int:
    arguments = ["--seed", str(SEED), "--draws", str(draws), "--flavour", flavour.value]
    return hostile.main([*arguments, "--operator", operators])


@pytest.mark.parametrize("operators", ["ReverseSequence-batch", "Gather-32,Resize-scales-linear"])
def test_a_sample_is_refused_or_answered(operators: str) -> None:
    assert _sampled(Flavour.STANDALONE, operators, 25) == 0


@pytest.mark.long
@pytest.mark.parametrize("flavour", list(Flavour))
def test_every_operator_is_refused_or_answered(flavour: Flavour) -> None:
    if flavour is Flavour.WASM and engine.lacking():
        missing("node", "apt-get install nodejs")
    operators = ",".join(SUBJECTS)
    assert _sampled(flavour, operators, 3) == 0


def test_errors_name_the_operator_and_the_node(tmp_path: Path) -> None:
    subject: BaseSubject = SUBJECTS["GatherND"]
    judge = Judge(Flavour.STANDALONE)
    assert judge.build(subject) is None
    judgements = [judge.judge(subject, SEED, number) for number in range(10)]
    judge.stop()
    refused = {judgement.why for judgement in judgements if judgement.verdict is Verdict.REFUSED}
    assert refused
    assert all(why.startswith("GatherND 'node': an index is out of range") for why in refused)
