"""The fuzzer itself: it finds a planted fault, shrinks it and keeps it; right kernels pass."""

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.build import build
from compiler.isolation.messages import CompileJob
from relaxd.contract.request import CompileRequest
from tests.fuzz import __main__ as fuzz
from tests.fuzz.batch import answered_at_once, merge
from tests.fuzz.case import Case, model_of, read
from tests.fuzz.child import Child, Died
from tests.fuzz.draft import Draft, Value
from tests.fuzz.engines import Failed, runtime
from tests.fuzz.front import Front
from tests.fuzz.generate import generate
from tests.fuzz.judge import Judge, Judgement, Verdict
from tests.fuzz.shrink import shrink
from tests.support.geometries import NAMES, builds_for

pytestmark = pytest.mark.slow

GEOMETRY = "256/16"


@pytest.fixture(scope="module")
def faulty() -> Iterator[Judge]:
    judge = Judge(GEOMETRY, engine="tests.fuzz.planted:relaxd")
    yield judge
    judge.stop()


def pooling_graph() -> Case:
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


@pytest.mark.long
def test_a_planted_fault_is_found_and_shrunk(faulty: Judge) -> None:
    case = pooling_graph()
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
    sampled = [generate(seed) for seed in range(150)]
    assert len({node.op_type for case in sampled for node in case.model.graph.node}) > 80
    assert not [case.seed for case in sampled if isinstance(runtime(case), Failed)]


def test_a_seed_draws_a_graph_where_no_operator_fits_in() -> None:
    """Its one input has more elements than operators may leave."""
    assert [node.op_type for node in generate(1148).model.graph.node] == ["Relu"]


def test_graphs_side_by_side_are_a_graph() -> None:
    cases = [case for seed in range(60) if not (case := generate(seed)).quantized][:24]
    union = merge(cases)
    assert len(union.model.graph.output) == sum(len(case.model.graph.output) for case in cases)
    assert not isinstance(runtime(union), Failed)


def test_a_graph_that_onnxruntime_refuses_is_judged_alone() -> None:
    good, refused = pooling_graph(), pooling_graph()
    (pool,) = (node for node in refused.model.graph.node if node.op_type == "MaxPool")
    (pads,) = (attribute for attribute in pool.attribute if attribute.name == "pads")
    pads.ints[:] = [0, -1, 0, -1]

    def answered(case: Case) -> bool:
        return not isinstance(runtime(case), Failed)

    def groups(*cases: Case) -> list[list[Case]]:
        return [group for group, _ in answered_at_once(cases, answered)]

    assert groups(good, good) == [[good, good]]
    assert groups(good, refused, good) == [[good, good], [refused]]
    assert groups(refused) == [[refused]]


class Faulty(Judge):
    """Finds fault with unions of graphs, of which it names those outputs, and with one seed."""

    def __init__(self, seed: int | None, apart: tuple[str, ...]) -> None:
        super().__init__(GEOMETRY)
        self.seed, self.apart, self.asked = seed, apart, list[int]()

    def judge(self, case: Case) -> Judgement:
        if case.inputs.keys() & {"g0_x0"}:
            return Judgement(Verdict.OURS, apart=self.apart)
        self.asked.append(case.seed)
        return Judgement(Verdict.OURS if case.seed == self.seed else Verdict.RIGHT)


class Answers(Child):
    """A child that gives the same outputs to every question."""

    def __init__(self, *outputs: float) -> None:
        self.outputs: Any = [[np.array([value], np.float32) for value in outputs]]

    def ask(self, question: Any) -> Any:
        return self.outputs

    def stop(self) -> None:
        pass


@pytest.mark.parametrize(
    ("ours", "runtime", "exact", "verdict"),
    [
        ((1, 2), (1, 3), (9, 2), Verdict.RUNTIME),
        ((1, 3), (1, 2), (9, 2), Verdict.OURS),
        ((1, 3), (1, 4), (1, 2), Verdict.BOTH),
        ((1, 2), (1, 2), (9, 9), Verdict.RIGHT),
    ],
)
def test_what_both_agree_on_is_no_fault_whatever_the_references_say(
    ours: tuple[float, ...],
    runtime: tuple[float, ...],
    exact: tuple[float, ...],
    verdict: Verdict,
) -> None:
    draft = Draft(np.random.default_rng(0))
    y, z = (draft.apply(name, ["x"], (1,)).name for name in ("Sin", "Exp"))
    case = Case(model_of(draft.nodes, {"x": (1,)}, [], [y, z]), ({},), False, 0)
    judge = Judge(GEOMETRY)
    judge.stop()
    judge._ours, judge._theirs = Answers(*ours), Answers(*runtime)
    judge._exact = judge._definition = Answers(*exact)
    assert judge.judge(case).verdict is verdict
    judge.stop()


@pytest.mark.parametrize(
    ("sizes", "verdict"),
    [
        ((3e-6, 2e-6, 0.0, 1.0), Verdict.QUANTIZATION),
        ((3e-6, 2e-6, 0.0, 0.01), Verdict.BOTH),
        ((9e-6, 2e-6, 0.0, 1.0), Verdict.BOTH),
        ((0.3, 0.2, 0.0, 1.0), Verdict.BOTH),
        ((np.nan, 2e-6, 0.0, 1.0), Verdict.BOTH),
    ],
)
def test_what_float32_is_too_short_for_is_told_from_a_fault(
    sizes: tuple[float, ...], verdict: Verdict
) -> None:
    """Both engines are off by more than the tolerance of so small an output."""
    ours, theirs, exact, greatest = sizes
    draft = Draft(np.random.default_rng(0))
    y = draft.apply("Sin", ["x"], (1,)).name
    case = Case(model_of(draft.nodes, {"x": (1,)}, [], [y]), ({},), False, 0)
    judge = Judge(GEOMETRY)
    judge._ours, judge._theirs = Answers(ours), Answers(theirs)
    judge._exact = judge._definition = Answers(exact)
    judge.values = Answers(greatest)
    judge.values.outputs = [{y: np.array([greatest], np.float32)}]
    assert judge.judge(case).verdict is verdict
    judge.stop()


@pytest.mark.parametrize(
    ("by_node", "verdict"),
    [(2e-6, Verdict.QUANTIZATION), (0.0, Verdict.OURS), (None, Verdict.OURS)],
)
def test_what_onnxruntime_takes_only_by_node_rounds_too(
    by_node: float | None, verdict: Verdict
) -> None:
    draft = Draft(np.random.default_rng(0))
    y = draft.apply("Sin", ["x"], (1,)).name
    case = Case(model_of(draft.nodes, {"x": (1,)}, [], [y]), ({},), False, 0)
    judge = Judge(GEOMETRY)
    judge._ours, judge._theirs = Answers(3e-6), Answers(0.0)
    judge._exact = judge._definition = Answers(0.0)
    refused = Failed("Fail", "Subgraph must have the shape set for all outputs")
    judge._theirs.outputs = refused
    judge._by_node = Answers(0.0)
    judge._by_node.outputs = refused if by_node is None else [[np.array([by_node], np.float32)]]
    judge.values = Answers(1.0)
    judge.values.outputs = [{y: np.array([1.0], np.float32)}]
    assert judge.judge(case).verdict is verdict
    judge.stop()


@pytest.mark.parametrize(
    ("seed", "apart", "asked", "result"),
    [
        (5, (), [3, 5, 8], [5]),
        (5, ("g1_t1", "g1_t2"), [5], [5]),
        (None, (), [3, 5, 8], [3]),
        (None, ("g2_t9",), [8], [3]),
    ],
)
def test_who_is_wrong_among_several_is_found(
    seed: int | None, apart: tuple[str, ...], asked: list[int], result: list[int]
) -> None:
    """Alone, or in company alone: then the union is the finding, under its first seed. Only graphs
    whose outputs depart are judged alone.
    """
    judge = Faulty(seed, apart)
    cases = [generate(number) for number in (3, 5, 8)]
    judged = list(judge.judge_all(cases, merge(cases)))
    assert judge.asked == asked
    assert [case.seed for case, one in judged if one.verdict is Verdict.OURS] == result
    assert {case.seed for case, _ in judged} == {3, 5, 8}


def test_a_child_that_computes_for_ever_died_and_one_that_waits_is_slow() -> None:
    for function, patience in (("busy", 1000.0), ("idle", 0.02)):
        child = Child(
            f"tests.fuzz.test_fuzz:{function}", 0.5 if function == "busy" else 50, patience
        )
        died = child.ask(None)
        assert isinstance(died, Died)
        assert died.slow is (function == "idle")


def busy(_: object) -> None:
    while True:
        pass


def idle(_: object) -> None:
    time.sleep(600)


class Wrong(Judge):
    """Takes every graph for wrong, and every smaller one for right."""

    def judge_all(self, cases: Sequence[Case], union: Case) -> Iterator[tuple[Case, Judgement]]:
        yield from ((case, Judgement(Verdict.OURS, "y departs")) for case in cases)

    def judge(self, case: Case) -> Judgement:
        return Judgement(Verdict.RIGHT)


def test_a_failure_ends_the_run_with_its_graph_and_the_command_that_repeats_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuzz, "Judge", Wrong)
    arguments = ["--geometry", "any", "--seed", "7", "--together", "1", "--shrink-seconds", "0"]
    assert fuzz.main([*arguments, "--findings", "1", "--keep", str(tmp_path)]) == 1
    first, *_, last, _ = capsys.readouterr().out.splitlines()
    [path] = tmp_path.glob("*.onnx")
    assert first == "seed 7, geometry 256/16"
    assert last.startswith("1 graphs, 0 runs, 1 wrong")
    command = f"python -m tests.fuzz --geometry 256/16 --llvm 3 --repeat {path}"
    assert json.loads(path.with_suffix(".json").read_text())["command"] == command


def test_each_graph_is_judged_at_every_geometry_beside_one_reference(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []
    answers = {"relaxd": Failed("import.unsupported", ""), "runtime": list[Any]()}

    def ask(child: Child, question: Any) -> Any:
        asked.append((child.name, getattr(question, "geometry", "")))
        return answers[child.name]

    monkeypatch.setattr(Child, "ask", ask)
    arguments = ["--geometry", "all", "--graphs", "1", "--seed", "7", "--seconds", "600"]
    assert fuzz.main(arguments) == 0
    assert asked == [("runtime", ""), *(("relaxd", name) for name in NAMES)]
    lines = capsys.readouterr().out.splitlines()
    refused = "1 graphs, 0 runs, 0 wrong, 0 crashes, 1 refused"
    assert [line.rpartition(" ")[2] for line in lines if line.startswith(refused)] == [*NAMES]


@pytest.mark.long
def test_a_build_that_takes_the_graph_of_another_makes_the_same_library(tmp_path: Path) -> None:
    case = generate(8)
    model = tmp_path / "m.onnx"
    model.write_bytes(case.model.SerializeToString())
    request = CompileRequest.of(dims=case.dims, options={"verify": False, "profile": False})

    def library(name: str, geometry: str, front: Front) -> bytes:
        job = CompileJob(str(model), request.to_json(), "native", str(tmp_path / name), "m")
        with builds_for(geometry, 0), front.share(model.read_bytes()):
            build(job)
        return (tmp_path / name / "model.so").read_bytes()

    combined, alone = Front(), Front()
    first = library("first", "128/16", combined)
    second = library("second", "512/32", combined)
    assert first != second == library("third", "512/32", alone)


def test_some_graphs_are_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--graphs", "6", "--seed", "1000", "--geometry", GEOMETRY, "--seconds", "600"]
    assert fuzz.main([*arguments, "--keep", str(tmp_path)]) == 0
    assert "6 graphs, 24 runs, 0 wrong, 0 crashes, 0 refused" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
