"""Every kernel family at any extents, in the tilings of several processors, against float64."""

from functools import reduce
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from compiler import targets
from compiler.passes import schedule
from compiler.passes.machine import Machine
from compiler.targets import Target
from tests.compiler.passes.conftest import Compiled, build_module
from tests.compiler.passes.families import FAMILIES, Family
from tests.compiler.passes.processors import IMITATED, NATIVE, imitation, lacking

EMITTERS = ("emit_winograd", "emit_direct", "emit_attention", "emit_contraction", "emit_blocked", "emit_window", "emit_program")
PROCESSORS = [
    *(
        pytest.param(targets.resolve(name), id=name, marks=pytest.mark.skipif(bool(lacking(name)), reason=f"needs {lacking(name)}"))
        for name in NATIVE
    ),
    *(pytest.param(imitation(name), id=f"like {name}") for name in IMITATED),
]


def corners(family: Family, machine: Machine) -> list[dict[str, int]]:
    """Every corner of every dim at least once, beside others of the other dims."""
    lists = {name: dim.corners(machine) for name, dim in family.dims.items()}
    turns = range(max(map(len, lists.values())))
    return [{name: found[(turn + 3 * place) % len(found)] for place, (name, found) in enumerate(lists.items())} for turn in turns]


@pytest.fixture
def emitters(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Which of the schedule's emitters made a kernel."""
    taken: set[str] = set()

    def spied(name: str, emit: Any) -> Any:
        def spy(*arguments: Any) -> Any:
            body = emit(*arguments)
            return body if body is None else (taken.add(name), body)[1]

        return spy

    for name in EMITTERS:
        monkeypatch.setattr(schedule, name, spied(name, getattr(schedule, name)))
    return taken


@pytest.mark.parametrize("target", PROCESSORS)
@pytest.mark.parametrize("name", FAMILIES)
def test_close_to_float64_at_any_extents(name: str, target: Target, emitters: set[str]) -> None:
    family, machine = FAMILIES[name], Machine.of(target)
    model = Compiled(build_module(family.graph, dict(family.inputs)), target)
    assert family.kernel is None or family.kernel in emitters

    def close(extents: dict[str, int]) -> None:
        arrays = family.draw(extents)
        family.check(model(*arrays), arrays)

    anywhere = st.fixed_dictionaries({name: st.integers(dim.least, dim.most) for name, dim in family.dims.items()})
    drawn = settings(max_examples=8, derandomize=True, deadline=None, database=None)(given(anywhere)(close))
    reduce(lambda test, at: example(at)(test), corners(family, machine), drawn)()
