"""Every kernel family at any extents, in the tilings of several processors, against float64."""

import os
import random
from functools import reduce
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from compiler.passes.cpu import schedule
from compiler.targets import Target
from compiler.targets.vector_unit import VectorUnit
from tests.compiler.conftest import Compiled, build_module
from tests.compiler.passes.families import FAMILIES
from tests.compiler.passes.family import Family
from tests.compiler.passes.processors import nearest
from tests.support.geometries import GEOMETRIES, geometry

pytestmark = pytest.mark.slow

# All families on all processors and at all geometries, for `make geometry`; else some of them, the
# same ones every time. Most other tests of kernels run at this machine's own geometry.
ALL = os.environ.get("RELAXD_GEOMETRIES") == "all"
SAMPLE = 8
# Products of small integers are instructions of one width.
WIDE = [name for name in FAMILIES if FAMILIES[name].kernel != "int8"]
CASES = [
    *((name, "x86-64-v3") for name in FAMILIES),
    *((name, "x86-64-v4") for name in (WIDE if ALL else random.Random(15).sample(WIDE, SAMPLE))),
    *(
        (name, "aarch64")
        for name in ("product", "convolution", "winograd", "attention", "both computed")
    ),
]
PAIRS = [(name, unit) for name in FAMILIES for unit in GEOMETRIES]
if not ALL:
    PAIRS = random.Random(15).sample(PAIRS, SAMPLE)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of the families that took a program."""
    names: set[str] = set()

    def spy(program: Any, unit: VectorUnit) -> schedule.Choice:
        choice = choose(program, unit)
        names.add(choice.family.name)
        return choice

    choose = schedule.choose
    monkeypatch.setattr(schedule, "choose", spy)
    return names


@pytest.mark.parametrize(("name", "processor"), CASES)
def test_close_to_float64_at_any_extents(name: str, processor: str, taken: set[str]) -> None:
    assert_close_at_any_extents(FAMILIES[name], nearest(processor))
    assert FAMILIES[name].kernel in (None, *taken)


@pytest.mark.parametrize(("name", "unit"), PAIRS)
def test_close_to_float64_at_every_geometry(name: str, unit: str, taken: set[str]) -> None:
    assert_close_at_any_extents(FAMILIES[name], geometry(unit))
    # Without an instruction for them, products of small integers are another family's.
    assert FAMILIES[name].kernel in (None, "int8", *taken)


def assert_close_at_any_extents(family: Family, target: Target) -> None:
    model = Compiled(build_module(family.graph, dict(family.inputs)), target)

    def close(extents: dict[str, int]) -> None:
        arrays = family.draw(extents)
        family.check(model(*arrays), arrays)

    anywhere = st.fixed_dictionaries(
        {name: st.integers(dim.least, dim.most) for name, dim in family.dims.items()}
    )
    sampled = settings(max_examples=8, derandomize=True, deadline=None, database=None)(
        given(anywhere)(close)
    )
    reduce(lambda test, size: example(size)(test), family.corners(VectorUnit.of(target)), sampled)()
