"""`relaxd bench`: how long a bundle takes, at every combination of dim values."""

import itertools
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from relaxd.cli.against import plan_race, run_race, show_race
from relaxd.cli.command import Json
from relaxd.cli.console import print_json, stdout
from relaxd.cli.declarations import split_dim
from relaxd.cli.run import BundlePath, Seed, Threads
from relaxd.cli.views import plain_table
from relaxd.client import extras
from relaxd.errors import DeclarationError
from relaxd.timing.intervals import FEWEST

if TYPE_CHECKING:
    from relaxd.loader.model import Model

Point = dict[str, int]
PANEL = "Comparison"
RUNS, WARMUP = 30, 3
ROUNDS, SECONDS = 11, 0.4


def bench(
    bundle: BundlePath,
    dim: Annotated[
        list[str] | None,
        typer.Option("--dim", metavar="NAME=SIZE,..", help="Values of a dim: batch=1,8."),
    ] = None,
    runs: Annotated[
        int | None, typer.Option(help="Timed calls at each point.", min=1, show_default="30")
    ] = None,
    warmup: Annotated[
        int | None, typer.Option(help="Calls before the timed ones.", min=0, show_default="3")
    ] = None,
    seed: Seed = 0,
    threads: Threads = None,
    json: Json = False,
    model: Annotated[
        Path | None,
        typer.Option(
            "--against",
            metavar="MODEL",
            help="The model's file, for other engines to run in turns with BUNDLE.",
            rich_help_panel=PANEL,
            show_default=False,
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine",
            metavar="NAME,..",
            help="The other engines: onnxruntime, openvino; torch for TorchScript.",
            rich_help_panel=PANEL,
            show_default="onnxruntime, or torch",
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            help="Rounds at each point, in each of which every engine has a turn.",
            rich_help_panel=PANEL,
            min=FEWEST,
            show_default="11",
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            help="The length of a turn.", rich_help_panel=PANEL, min=0.0, show_default="0.4"
        ),
    ] = None,
) -> None:
    """Time BUNDLE at every combination of dim values, on random inputs.

    Inputs are random: floats from a normal distribution, integers 0 or 1. Times include checking
    inputs and copying arrays.

    With --against, other engines run MODEL on the same inputs with as many threads, each in a
    process of its own, one at a time.

    Example: [bold]relaxd bench out --dim batch=1,8 --dim seq=16,128 --against m.onnx[/]
    """
    if model is None:
        _refuse("without --against", engine=engine, rounds=rounds, seconds=seconds)
        race = None
    else:
        _refuse("with --against", runs=runs, warmup=warmup)
        race = plan_race(model, engine, rounds or ROUNDS, SECONDS if seconds is None else seconds)
    with extras.runtime():
        from relaxd.loader.opening import load_library
        from relaxd.loader.samples import dim_values

    choices = choices_of(dim)
    began = time.perf_counter()
    with extras.runtime():
        loaded = load_library(bundle, threads=threads)
    load_seconds = time.perf_counter() - began
    points = [dim_values(loaded.dims, point) for point in all_points(choices)]
    if race is not None:
        report = run_race(race, bundle, loaded, points, seed)
        if json:
            print_json(report)
        else:
            show_race(race, report)
        return
    runs, warmup = runs or RUNS, WARMUP if warmup is None else warmup
    results = [_measure(loaded, point, runs, warmup, seed) for point in points]
    if json:
        print_json(
            {
                "model": loaded.manifest.name,
                "threads": loaded.threads,
                "load_seconds": load_seconds,
                "points": results,
            }
        )
        return
    _show(loaded, results, load_seconds)


def _refuse(where: str, **options: float | str | None) -> None:
    """Raises DeclarationError for an option that has a value."""
    for name, value in options.items():
        if value is not None:
            raise DeclarationError(
                f"--{name} does nothing {where}", field=name, hint="leave it out"
            )


def _show(model: "Model", results: list[dict[str, Any]], load_seconds: float) -> None:
    table = plain_table(
        *(escape(d.name.upper()) for d in model.dims), "MEDIAN ms", "P95 ms", "MIN ms", "CALLS/s"
    )
    for column in table.columns:
        column.justify = "right"
    for result in results:
        times = (f"{result[key]:.3f}" for key in ("median_ms", "p95_ms", "min_ms"))
        table.add_row(*map(str, result["dims"].values()), *times, f"{result['calls_per_s']:.1f}")
    stdout().print(table)
    stdout().print(
        f"{model.manifest.name}: {results[0]['runs']} calls a row, threads {model.threads}, "
        f"loaded in {load_seconds:.2f} s"
    )


def _measure(model: "Model", point: Point, runs: int, warmup: int, seed: int) -> dict[str, Any]:
    import numpy as np

    from relaxd.loader.samples import draw

    inputs = draw(model.inputs, point, seed, model.manifest.state)
    for _ in range(warmup):
        model.run(inputs)
    times = np.empty(runs)
    for i in range(runs):
        began = time.perf_counter()
        model.run(inputs)
        times[i] = time.perf_counter() - began
    median, p95 = np.percentile(times, [50, 95])
    milliseconds = {"median_ms": median * 1e3, "p95_ms": p95 * 1e3, "min_ms": times.min() * 1e3}
    return {
        "dims": point,
        "runs": runs,
        **{key: float(value) for key, value in milliseconds.items()},
        "calls_per_s": float(runs / times.sum()),
    }


def choices_of(texts: list[str] | None) -> dict[str, list[int]]:
    """The values of each dim, from texts like `batch=1,8`; raises DeclarationError."""
    choices: dict[str, list[int]] = {}
    for text in texts or []:
        name, values = split_dim(text)
        sizes = [value.strip() for value in values.split(",")]
        if not all(size.isdecimal() for size in sizes):
            raise DeclarationError(
                f"cannot read --dim {text!r}",
                field=f"dims.{name}",
                hint="as in --dim batch=1,8",
            )
        if name in choices:
            raise DeclarationError(
                f"--dim {name} is given twice",
                field=f"dims.{name}",
                hint="as in --dim batch=1,8",
            )
        choices[name] = [int(size) for size in sizes]
    return choices


def all_points(choices: dict[str, list[int]]) -> list[Point]:
    """Every combination of the values."""
    return [
        dict(zip(choices, sizes, strict=True)) for sizes in itertools.product(*choices.values())
    ]
