"""The fuzzer itself: it finds a planted fault, shrinks it and keeps it; right kernels pass."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.fuzz import __main__ as fuzz
from tests.fuzz.case import Case, model_of, read
from tests.fuzz.draft import Draft, Value
from tests.fuzz.engines import Failed, runtime
from tests.fuzz.generate import generate
from tests.fuzz.judge import Judge, Verdict
from tests.fuzz.shrink import shrink

pytestmark = pytest.mark.slow

GEOMETRY = "256/16"


@pytest.fixture(scope="module")
def faulty() -> Iterator[Judge]:
    judge = Judge(GEOMETRY, engine="tests.fuzz.planted:relaxd")
    yield judge
    judge.stop()


def pooled() -> Case:
    """A pool amid other layers."""
    draft = Draft(np.random.default_rng(0))
    heights = (2, 17, 9)
    x = Value("x", (1, 16, heights, 8))
    y = draft.apply("Conv", [x.name, draft.weight(24, 16, 1, 1, fan=16)], (1, 24, heights, 8))
    y = draft.apply("Sigmoid", [y.name], y.shape)
    y = draft.apply(
        "MaxPool", [y.name], (1, 24, y.shape[2], 8), kernel_shape=[1, 3], pads=[0, 1, 0, 1]
    )
    z = draft.apply("Tanh", [y.name], y.shape)
    draft.apply("Concat", [y.name, z.name], (1, 48, heights, 8), axis=1)
    model = model_of(
        draft.nodes, {"x": (1, 16, "h", 8)}, list(draft.constants.values()), [draft.values[-1].name]
    )
    return Case(model, tuple({"h": height} for height in heights), False, 0)


def test_a_planted_fault_is_found_and_shrunk(faulty: Judge) -> None:
    case = pooled()
    assert faulty.judge(case).verdict is Verdict.OURS

    def fails(smaller: Case) -> bool:
        return faulty.judge(smaller).verdict is Verdict.OURS

    small = shrink(case, fails, faulty.values.ask, seconds=120)
    # Without a convolution before it, channels do not come last, and another kernel takes it.
    assert [node.op_type for node in small.model.graph.node] == ["Conv", "MaxPool"]
    assert len(small.points) == 1


def test_a_kept_graph_is_read_as_it_was(tmp_path: Path) -> None:
    case = generate(3)
    path = case.write(tmp_path / "kept", {"verdict": "ours"})
    assert read(path) == case


def test_seeds_draw_graphs_that_run() -> None:
    drawn = [generate(seed) for seed in range(150)]
    assert len({node.op_type for case in drawn for node in case.model.graph.node}) > 50
    assert not [case.seed for case in drawn if isinstance(runtime(case), Failed)]


def test_some_graphs_are_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--graphs", "6", "--seed", "1000", "--geometry", GEOMETRY, "--seconds", "600"]
    assert fuzz.main([*arguments, "--keep", str(tmp_path)]) == 0
    assert "6 graphs, 24 runs, 0 wrong, 0 crashes, 0 refused" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
