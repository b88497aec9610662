"""`relaxd bench`: how long a bundle takes, at every combination of dim values."""

import itertools
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from relaxd.cli.command import Json
from relaxd.cli.console import print_json, stdout
from relaxd.cli.declarations import split_dim
from relaxd.cli.run import BundlePath, Seed, Threads
from relaxd.cli.views import plain_table
from relaxd.client import extras
from relaxd.errors import DeclarationError

if TYPE_CHECKING:
    from relaxd.loader.model import Model

Point = dict[str, int]


def bench(
    bundle: BundlePath,
    dim: Annotated[
        list[str] | None,
        typer.Option("--dim", metavar="NAME=SIZE,..", help="Values of a dim: batch=1,8."),
    ] = None,
    runs: Annotated[int, typer.Option(help="Timed calls at each point.", min=1)] = 30,
    warmup: Annotated[int, typer.Option(help="Calls before the timed ones.", min=0)] = 3,
    seed: Seed = 0,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Time BUNDLE at every combination of dim values, on random inputs.

    Inputs are random: floats from a normal distribution, integers 0 or 1. Times include checking
    inputs and copying arrays.
    Example: [bold]relaxd bench out --dim batch=1,8 --dim seq=16,128[/]
    """
    with extras.runtime():
        from relaxd.loader.model import load
        from relaxd.loader.samples import dim_values

    choices = choices_of(dim)
    began = time.perf_counter()
    with extras.runtime():
        model = load(bundle, threads=threads)
    load_seconds = time.perf_counter() - began
    points = [dim_values(model.dims, point) for point in all_points(choices)]
    results = [_measure(model, point, runs, warmup, seed) for point in points]
    if json:
        print_json(
            {
                "model": model.manifest.name,
                "threads": model.threads,
                "load_seconds": load_seconds,
                "points": results,
            }
        )
        return
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
        f"{model.manifest.name}: {runs} calls a row, threads {model.threads}, loaded in "
        f"{load_seconds:.2f} s"
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
