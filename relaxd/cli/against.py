"""`relaxd bench --against`: a bundle and other engines on the bundle's model, in turns."""

import importlib.util
import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from relaxd.cli.console import stdout
from relaxd.cli.views import plain_table
from relaxd.client.errors import FileTrouble
from relaxd.client.extras import ExtraMissing
from relaxd.contract.dims.names import quote_name
from relaxd.errors import DeclarationError, ExecutionError, suggest

if TYPE_CHECKING:
    from relaxd.loader.model import Model
    from relaxd.timing.intervals import Interval

Point = dict[str, int]
Outcome = dict[str, Any]
"""One point: what `relaxd.timing.contestants.measure_point` returns, with `dims` and `ratios`."""

OURS = "relaxd"
TITLES = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO", "torch": "torch"}
"""The engines to choose from; each is also the name of its package."""
_ONNX, _PYTORCH = ("onnxruntime", "openvino"), ("torch",)


@dataclass(frozen=True)
class Race:
    """The model's file, the engines that run it, and rounds of so many seconds an engine."""

    model: Path
    engines: tuple[str, ...]
    rounds: int
    seconds: float


def plan_race(model: Path, engines: str | None, rounds: int, seconds: float) -> Race:
    """The race that the options ask for; raises FileTrouble without a file, DeclarationError for
    engines that are unknown or cannot take it, and ExtraMissing for one that is not installed.
    """
    if not model.is_file():
        raise FileTrouble(f"no model at {model}", hint="name the file that the bundle was made of")
    able = _PYTORCH if zipfile.is_zipfile(model) else _ONNX
    names = [name.strip() for name in (engines or able[0]).split(",")]
    for name in names:
        if name not in TITLES:
            raise DeclarationError(
                f"there is no engine {name!r}",
                field="engine",
                hint=suggest(name, TITLES, f"one of {', '.join(TITLES)}"),
            )
        if name not in able:
            kind = "PyTorch's" if able is _PYTORCH else "ONNX"
            raise DeclarationError(
                f"{TITLES[name]} does not run {model.name}, which is {kind}",
                field="engine",
                hint=f"as in --engine {','.join(able)}",
            )
        if importlib.util.find_spec(name) is None:
            raise ExtraMissing(
                f"the engine {name} needs the package {name}, which is not installed",
                hint=f"pip install {name}",
            )
    return Race(model, tuple(dict.fromkeys(names)), rounds, seconds)


def run_race(
    race: Race, bundle: Path, model: "Model", points: Sequence[Point], seed: int
) -> dict[str, Any]:
    """The document of `--json`; raises ExecutionError where nothing can be compared."""
    from relaxd.timing.contestants import measure_point, start_workers

    with TemporaryDirectory(prefix="relaxd-bench-") as path:
        folder = Path(path)
        _write_subject(race, bundle, model, points, seed, folder)
        with start_workers((OURS, *race.engines), folder) as contestants:
            results = [
                measure_point(
                    contestants,
                    index,
                    folder,
                    seconds=race.seconds,
                    count=race.rounds,
                    reference=race.engines[0],
                )
                for index in range(len(points))
            ]
            resident = {
                one.engine: one.ask(resident=True).get("resident_bytes") for one in contestants
            }
    outcomes = [
        {"dims": point, **result, "ratios": _ratios(race, result["engines"])}
        for point, result in zip(points, results, strict=True)
    ]
    if not any(outcome["ratios"] for outcome in outcomes):
        raise ExecutionError(
            "no engine ran beside relaxd: " + "; ".join(_errors(outcomes)),
            hint=f"is {race.model} the model that the bundle was made of?",
        )
    return {
        "model": model.manifest.name,
        "against": str(race.model),
        "threads": model.threads,
        "rounds": race.rounds,
        "points": outcomes,
        "peak_resident_bytes": resident,
        "summary": summary(race, outcomes),
    }


def _write_subject(
    race: Race, bundle: Path, model: "Model", points: Sequence[Point], seed: int, folder: Path
) -> None:
    """The files that `relaxd.timing.worker` reads; raises DeclarationError for inputs of types that
    the other engines cannot be given.
    """
    import numpy as np

    from relaxd.loader.samples import draw
    from relaxd.timing.worker import SUBJECT

    for spec in model.inputs:
        if not hasattr(np, spec.dtype.replace("bool", "bool_")):
            raise DeclarationError(
                f"input {spec.name!r} is {spec.dtype}, which other engines cannot be given",
                field="against",
                hint="leave out --against",
            )
    for index, point in enumerate(points):
        np.savez(
            folder / f"feed_{index}.npz",
            **dict[str, Any](draw(model.inputs, point, seed, model.manifest.state)),
        )
    subject = {
        "path": str(race.model.resolve()),
        "bundle": str(bundle.resolve()),
        "names": [spec.name for spec in model.inputs],
        "consts": model.manifest.action_key.get("parts", {}).get("request", {}).get("consts", {}),
        "threads": model.threads,
    }
    (folder / SUBJECT).write_text(json.dumps(subject))


def _ratios(race: Race, engines: dict[str, Any]) -> dict[str, Any]:
    """For each other engine that ran, relaxd's time over its in paired rounds: the median with its
    interval, and the rounds' own.
    """
    from relaxd.timing.intervals import median_interval, pair_ratios

    if "rounds" not in engines[OURS]:
        return {}
    ratios = {}
    for name in race.engines:
        if "rounds" in engines[name]:
            rounds = pair_ratios(engines[OURS]["rounds"], engines[name]["rounds"])
            middle = median_interval(rounds)
            ratios[name] = {
                "median": middle.middle,
                "low": middle.low,
                "high": middle.high,
                "rounds": rounds,
            }
    return ratios


def summary(race: Race, outcomes: Sequence[Outcome]) -> str:
    """One sentence: relaxd's share of each engine's time, over all points if there are several."""
    from relaxd.timing.intervals import geometric_mean

    compared = [outcome for outcome in outcomes if outcome["ratios"]]
    shares = []
    for name in race.engines:
        ratios = [one["ratios"][name] for one in compared if name in one["ratios"]]
        if len(ratios) == 1:
            shares.append(_share(_interval(ratios[0]), name))
        elif mean := geometric_mean([ratio["rounds"] for ratio in ratios]):
            shares.append(_share(mean, name))
    several = f", the geometric mean of {len(compared)} points"
    where = _where(compared[0]["dims"]) if len(compared) == 1 else several
    return f"relaxd takes {' and '.join(shares)}{where}."


def _interval(ratio: dict[str, Any]) -> "Interval":
    from relaxd.timing.intervals import Interval

    return Interval(ratio["median"], ratio["low"], ratio["high"])


def _share(interval: "Interval", engine: str) -> str:
    even = interval.low <= 1.0 <= interval.high
    text = f"{interval.middle:.2f} of {TITLES[engine]}'s time ({interval.low:.2f} to "
    return text + f"{interval.high:.2f}{': no difference was measured' if even else ''})"


def _where(dims: Point) -> str:
    sizes = "".join(f" {quote_name(name)}={size}" for name, size in dims.items())
    return f" at{sizes}" if sizes else ""


def show_race(race: Race, report: dict[str, Any]) -> None:
    """A row for each point, then memory, what went wrong, and the summary."""
    outcomes = report["points"]
    names = (OURS, *race.engines)
    table = plain_table(
        *(escape(name.upper()) for name in outcomes[0]["dims"]),
        *(f"{_title(name)} ms" for name in names),
        *(f"RATIO TO {_title(name)}" for name in race.engines),
    )
    for column in table.columns:
        column.justify = "right"
    for outcome in outcomes:
        times = (_time(outcome["engines"][name]) for name in names)
        ratios = (
            str(_interval(outcome["ratios"][name])) if name in outcome["ratios"] else "-"
            for name in race.engines
        )
        table.add_row(*map(str, outcome["dims"].values()), *times, *ratios)
    stdout().print(table)
    memory = (
        f"{_title(name)} {size / 1e6:.0f} MB"
        for name, size in report["peak_resident_bytes"].items()
        if size is not None
    )
    stdout().print(
        f"{report['model']}: {race.rounds} rounds in turns, {report['threads']} threads each; "
        f"peak resident memory: {', '.join(memory)}"
    )
    for line in _warnings(outcomes):
        stdout().print(f"[bold yellow]warning:[/] {escape(line)}")
    stdout().print(escape(report["summary"]), soft_wrap=True)


def _title(engine: str) -> str:
    return TITLES.get(engine, engine)


def _time(outcome: dict[str, Any]) -> str:
    return f"{outcome['milliseconds']:.3f}" if "milliseconds" in outcome else "fails"


def _warnings(outcomes: Sequence[Outcome]) -> list[str]:
    """Reasons to trust the numbers less: engines that fail, unequal outputs, a busy machine."""
    from relaxd.timing.contestants import TOLERANCE
    from relaxd.timing.quiet import MOST

    lines = _errors(outcomes)
    for outcome in outcomes:
        for name, result in outcome["engines"].items():
            if (result.get("difference") or 0.0) > TOLERANCE:
                lines.append(
                    f"outputs of {name} differ by {result['difference']:.2g} of their range"
                    + _where(outcome["dims"])
                )
    if (others := max(max(one["others"], default=0.0) for one in outcomes)) > MOST:
        lines.append(
            f"other programs used up to {others:.0%} of the processors: repeat this when the "
            "machine is idle"
        )
    return lines


def _errors(outcomes: Sequence[Outcome]) -> list[str]:
    """The engines that failed with their errors, each once."""
    return list(
        dict.fromkeys(
            f"{name} fails: {result['error']}"
            for outcome in outcomes
            for name, result in outcome["engines"].items()
            if "error" in result
        )
    )
