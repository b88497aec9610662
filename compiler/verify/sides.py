"""The two sides of a verification, the reference and the library, each run in a process of its own
at the points of its trials.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compiler.errors import VerifyError
from compiler.ir.graph.draws import Draw
from compiler.isolation.step import (
    OnRecords,
    Outcome,
    Record,
    TaskLimits,
    never,
    read_records,
    run_task,
)
from compiler.targets import TargetStatus
from compiler.verify.inputs.inputs import LeftOut, Trial
from compiler.verify.progress import Follower, OnStep, ignore
from compiler.verify.reference.onnx import ONNX
from relaxd.contract.dims.names import quote_name


@dataclass(frozen=True)
class Budget:
    """Seconds of computing, as `clock_work` counts them, for both sides together, shared evenly;
    bytes of one side's private memory, and of one point's inputs. on_step: gets how far the side is
    that runs; cancelled: tells whether nobody wants the reference's answers any more.
    """

    seconds: float = 60.0
    memory_bytes: int = 8 << 30
    input_bytes: int = 64 << 20
    on_step: OnStep = ignore
    cancelled: Callable[[], bool] = never


@dataclass(frozen=True)
class Reference:
    """The model the reference runs, the scalars for inputs that the library has fixed, the engines
    to ask, in order, and the numbers that inputs by these names are fed.

    perturbation: the seed by which inputs and weights are moved by some ulp, None for unmoved ones.
    shown: values of the graph of an ONNX model that are outputs too.
    """

    model: Path
    consts: dict[str, Any]
    engines: tuple[str, ...] = ONNX
    draws: Mapping[str, Draw] = field(default_factory=dict)
    perturbation: int | None = None
    shown: tuple[str, ...] = ()

    @property
    def spec(self) -> Record:
        """The part of a task's spec that says which model it runs."""
        return {
            "model": str(self.model),
            "consts": self.consts,
            "draws": {name: draw.to_json() for name, draw in self.draws.items()},
            "perturbation": self.perturbation,
            "shown": self.shown,
        }


@dataclass(frozen=True)
class Runner:
    """The process that runs the library: the task's module, what its spec has beside the bundle and
    the points, and the status a pass gives.

    patience: after how many times its seconds it is killed where other processes, which it starts,
    compute in its place; None where it computes by itself. slow: it is so much slower than what the
    library is for that a library of which it finishes no point is only compiled; else that is a
    failure. emulation: what the report says of the emulator.
    """

    module: str = "compiler.verify.run.native"
    spec: tuple[tuple[str, str], ...] = ()
    status: TargetStatus = TargetStatus.EXECUTED
    patience: float | None = None
    slow: bool = False
    emulation: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Answered:
    """The name of the first engine that answers at any point, the trials it answered, the others
    with its reason, and for how many seconds all that were asked computed.
    """

    engine: str
    trials: list[Trial]
    left_out: list[LeftOut]
    seconds: float = 0.0


class Unable(Exception):
    """The library turns out not to run on this machine; the text says why."""


NATIVE = Runner()
ON_SOFTWARE = Runner(status=TargetStatus.EMULATED)
"""For a device that is this machine's processor under another name."""


def ask_reference(
    reference: Reference,
    trials: Sequence[Trial],
    folder: Path,
    budget: Budget,
    side: str = "reference",
    *,
    distinct: bool = False,
) -> Answered:
    """Ask the engines in turn until one answers. `side` names the files of its outputs; distinct:
    rows that repeat are asked once.
    """
    first_refusal: list[LeftOut] = []
    most = left = budget.seconds / 2
    for engine in reference.engines:
        names, answered, left_out, unasked = list[str](), list[Trial](), list[LeftOut](), trials
        while unasked:
            limits = TaskLimits.of_work(max(left, 1.0), budget.memory_bytes)
            spec = {
                "engine": engine,
                **reference.spec,
                "seconds": limits.seconds,
                "points": [trial.to_spec(side, distinct=distinct) for trial in unasked],
            }
            outcome = run_task(
                "compiler.verify.reference.onnx",
                spec,
                folder / f"{side}.{engine}.{len(trials) - len(unasked)}.jsonl",
                limits,
                on_records=_follow(side, spec, budget),
                cancelled=budget.cancelled,
            )
            left -= outcome.seconds
            crashed = _crashed_at(unasked, outcome)
            asked, unasked = unasked[: crashed + 1], unasked[crashed + 1 :]
            well, others = _sorted_out(asked, outcome, "refused", f"{engine} refused")
            names += [_name(outcome)] if well else []
            answered, left_out = answered + well, left_out + others
        if answered:
            return Answered(names[0], answered, left_out, most - left)
        first_refusal = first_refusal or left_out
    return Answered("", [], first_refusal, most - left)


def _follow(side: str, spec: Record, budget: Budget) -> OnRecords:
    efforts = {point["index"]: point["effort"] for point in spec["points"]}
    return Follower(side, efforts, budget.on_step).take


def _crashed_at(trials: Sequence[Trial], outcome: Outcome) -> int:
    """The index of the trial at which the engine's process died of a signal, behind which the
    others can be asked; that of the last where it did not, or died before the first.
    """
    known = {record["index"] for record in outcome.records if "index" in record}
    index = next((i for i, trial in enumerate(trials) if trial.index not in known), len(trials))
    died = not outcome.ended and (outcome.reason or "").startswith("died of") and outcome.records
    return index if died else len(trials) - 1


def _name(outcome: Outcome) -> str:
    """The engine's, with the operators that an evaluation in float64 computed in float32."""
    operators = outcome.records[-1].get("float32")
    name = str(outcome.records[0]["engine"])
    return f"{name} ({', '.join(operators)} in float32)" if operators else name


def run_library(
    bundle: Path,
    trials: Sequence[Trial],
    folder: Path,
    budget: Budget,
    runner: Runner,
    side: str = "library",
) -> tuple[list[Trial], list[LeftOut]]:
    """The trials that the library finished, and those that the budget left out; raises Unable
    where the task says so, VerifyError for any other end. `side` names the files of its outputs.
    """
    points = [trial.to_spec(side) for trial in trials]
    seconds = budget.seconds / 2
    spec = {**dict(runner.spec), "bundle": str(bundle), "seconds": seconds, "points": points}
    limits = TaskLimits.of_work(seconds, budget.memory_bytes)
    if runner.patience is not None:
        limits = TaskLimits(budget.memory_bytes, seconds * runner.patience)
    outcome = run_task(
        runner.module,
        spec,
        folder / f"{side}.jsonl",
        limits,
        on_records=_follow(side, spec, budget),
    )
    if unable := [record["unable"] for record in outcome.records if "unable" in record]:
        raise Unable(unable[0])
    ran, unfinished = _sorted_out(trials, outcome, "failed", "the memory budget ran out")
    for record in outcome.records:
        if "failed" in record and not _out_of_memory(record["failed"]):
            point = trials[[trial.index for trial in trials].index(record["index"])].point
            raise VerifyError(
                f"the library failed at {where(point.dims)}: {record['failed']}",
                reason="run_failed",
                point=point.to_json(),
            )
    if not (outcome.ended or outcome.late):
        raise VerifyError(
            f"the library's process {outcome.reason}",
            reason="crashed",
            point=unfinished[0].point.to_json() if unfinished else None,
            output=outcome.output,
        )
    return ran, unfinished


@dataclass(frozen=True)
class FirstCalls:
    """Seconds of the library's first call at each trial that it finished, by its index, and the
    peak of resident bytes of its process, None where it did not end by itself.
    """

    seconds: Mapping[int, float] = field(default_factory=dict)
    peak_rss_bytes: int | None = None


def read_first_calls(folder: Path) -> FirstCalls:
    """Read what `run_library` left in the folder; nothing where it did not run."""
    records = read_records(folder / "library.jsonl")
    seconds = {each["index"]: each["seconds"] for each in records if "seconds" in each}
    peaks = [each["peak_rss_bytes"] for each in records if "peak_rss_bytes" in each]
    return FirstCalls(seconds, peaks[0] if peaks else None)


def _out_of_memory(message: str) -> bool:
    return any(
        sign in message
        for sign in ("bad_alloc", "MemoryError", "Unable to allocate", "out of memory")
    )


def _sorted_out(
    trials: Sequence[Trial], outcome: Outcome, key: str, refusal: str
) -> tuple[list[Trial], list[LeftOut]]:
    """Trials that ended well, and the others with the record's reason or that of the task's end."""
    well, others = [], []
    records = {record["index"]: record for record in outcome.records if "index" in record}
    for trial in trials:
        match records.get(trial.index):
            case None:
                others.append(LeftOut(trial.point, outcome.reason or "it was not reached"))
            case {"skipped": reason}:
                others.append(LeftOut(trial.point, reason))
            case record if key in record:
                others.append(LeftOut(trial.point, f"{refusal}: {record[key]}"))
            case _:
                well.append(trial)
    return well, others


def where(dims: Any) -> str:
    """The dims of a point, as messages state them."""
    return (
        ", ".join(f"{quote_name(name)}={value}" for name, value in dims.items()) or "its only shape"
    )
